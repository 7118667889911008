import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers of RocketMQ 4.6 and newer: "lite" is given queues, "assign" takes them itself. Args as Exchange.java's. */
public class LitePull {
    public static void main(String[] args) throws Exception {
        DefaultLitePullConsumer lite = consumer(args, "lite");
        for (int number = 4; number < args.length; number++) {
            lite.subscribe(args[number], args[3]);
        }
        lite.start();
        DefaultLitePullConsumer assign = consumer(args, "assign");
        List<MessageQueue> queues = new ArrayList<>();
        for (int number = 4; number < args.length; number++) {
            assign.setSubExpressionForAssign(args[number], args[3]);
        }
        assign.start();
        for (int number = 4; number < args.length; number++) {
            queues.addAll(queuesOf(assign, args[number]));
        }
        assign.assign(queues);
        for (MessageQueue queue : queues) {
            seekToBegin(assign, queue);
        }
        new Thread(() -> printAll("lite", lite)).start();
        printAll("assign", assign);
    }

    private static DefaultLitePullConsumer consumer(String[] args, String kind) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[1] + "-" + kind);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(args[1] + "-" + kind);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    private static Collection<MessageQueue> queuesOf(DefaultLitePullConsumer consumer, String topic) throws InterruptedException {
        while (true) {
            try {
                return consumer.fetchMessageQueues(topic);
            } catch (Exception error) {
                System.out.println("again after " + error);
                Thread.sleep(500);
            }
        }
    }

    private static void seekToBegin(DefaultLitePullConsumer consumer, MessageQueue queue) throws InterruptedException {
        while (true) {
            try {
                consumer.seekToBegin(queue);
                return;
            } catch (Exception error) {
                System.out.println("again after " + error);
                Thread.sleep(500);
            }
        }
    }

    private static void printAll(String kind, DefaultLitePullConsumer consumer) {
        while (true) {
            consumer.poll().forEach(message -> print(kind, message));
        }
    }

    private static void print(String kind, MessageExt message) {
        try {
            MessageDigest digest = MessageDigest.getInstance("MD5");
            digest.update(message.getBody());
            digest.update(message.getUserProperty("word").getBytes(StandardCharsets.UTF_8));
            String hash = String.format("%032x", new BigInteger(1, digest.digest()));
            System.out.println(String.join(" ", "got", kind, message.getKeys(), message.getTags(), "" + message.getReconsumeTimes(), hash));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
