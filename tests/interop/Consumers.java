import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's consumers of every kind, of version 4.9 or 5 (which has MessageModel in another package), each in a group of its own; ends by
 * SIGTERM. Args: name servers, topic, name.
 */
public class Consumers {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer concurrent = push(args, "concurrent", "CLUSTERING");
        concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            print("concurrent", messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        concurrent.start();
        DefaultMQPushConsumer orderly = push(args, "orderly", "CLUSTERING");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            print("orderly", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        orderly.start();
        DefaultMQPushConsumer broadcast = push(args, "broadcast", "BROADCASTING");
        broadcast.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            print("broadcast", messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        broadcast.start();
        DefaultLitePullConsumer lite = lite(args);
        lite.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            concurrent.shutdown();
            orderly.shutdown();
            broadcast.shutdown();
            lite.shutdown();
        }));
        System.out.println("started");
        while (true) {
            print("lite", lite.poll(500));
        }
    }

    private static DefaultMQPushConsumer push(String[] args, String kind, String model) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group-" + kind);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(args[2] + "-" + kind);
        consumer.setPollNameServerInterval(1000);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), model));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        return consumer;
    }

    private static DefaultLitePullConsumer lite(String[] args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("group-lite");
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(args[2] + "-lite");
        consumer.setPollNameServerInterval(1000);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        return consumer;
    }

    private static synchronized void print(String kind, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String place = message.getQueueId() + " " + message.getQueueOffset();
            System.out.println("got " + kind + " " + place + " " + new String(message.getBody()));
        }
    }
}
