import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * RocketMQ's client, of any version from 4.4 on. Args: name servers, its name, and "send" with ways of sending, each with a count behind a
 * colon; or "consume" with tags and topics. A message is in topic "from-NAME", has its way for a tag, and "NAME-WAY-NUMBER" for a key. Each
 * "first" is tried until it is sent: routes may have to be waited for. What is sent to topic "again" a push consumer takes only when it comes
 * again. Of what was consumed, these are told: consumer, key, tag, how often it had come before, and a hash of body and property.
 */
public class Exchange {
    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        if (args[2].equals("consume")) {
            consume(args);
            return;
        }
        TransactionMQProducer producer = new TransactionMQProducer("senders-" + args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.setTransactionListener(new Ends());
        producer.start();
        for (int number = 3; number < args.length; number++) {
            String[] words = args[number].split(":");
            send(producer, args[1], words[0], Integer.parseInt(words[1]));
        }
        System.out.println("sent");
        producer.shutdown();
        System.exit(0);
    }

    private static class Ends implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return message.getTags().equals("commit") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    private static void send(TransactionMQProducer producer, String name, String way, int count) throws Exception {
        CountDownLatch answers = new CountDownLatch(count);
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message message = message(name, way, number);
            switch (way) {
                case "oneway":
                    producer.sendOneway(message);
                    break;
                case "async":
                    producer.send(message, new Answered(answers));
                    break;
                case "batch":
                    batch.add(message);
                    if (batch.size() == 10) {
                        check(producer.send(batch));
                        batch.clear();
                    }
                    break;
                case "ordered":
                    check(producer.send(message, (queues, sent, line) -> queues.get((Integer) line), number % 3));
                    break;
                case "commit":
                case "rollback":
                    check(producer.sendMessageInTransaction(message, null));
                    break;
                case "first":
                    sendAtLast(producer, message);
                    break;
                case "delayed":
                    message.setDelayTimeLevel(1);
                    check(producer.send(message));
                    break;
                default:
                    check(producer.send(message));
            }
        }
        if (way.equals("async")) {
            answers.await();
        }
    }

    private static void sendAtLast(TransactionMQProducer producer, Message message) throws InterruptedException {
        while (true) {
            try {
                check(producer.send(message));
                return;
            } catch (Exception error) {
                System.out.println("again after " + error);
                Thread.sleep(500);
            }
        }
    }

    private static Message message(String name, String way, int number) {
        String key = name + "-" + way + "-" + number;
        String body = key + " \u00e9\u6f22 " + (way.equals("large") ? "x".repeat(8000) : "");
        String topic = way.equals("again") ? "again" : "from-" + name;
        Message message = new Message(topic, way, key, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("word", "\u00e9\u6f22");
        return message;
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static class Answered implements SendCallback {
        private final CountDownLatch answers;

        Answered(CountDownLatch answers) {
            this.answers = answers;
        }

        @Override
        public void onSuccess(SendResult result) {
            check(result);
            answers.countDown();
        }

        @Override
        public void onException(Throwable error) {
            error.printStackTrace();
        }
    }

    private static void consume(String[] args) throws Exception {
        DefaultMQPushConsumer concurrent = push(args, "concurrent");
        concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (message.getTags().equals("again") && message.getReconsumeTimes() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            print("concurrent", message);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        concurrent.start();
        DefaultMQPushConsumer orderly = push(args, "orderly");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> print("orderly", message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        orderly.start();
        pull(args);
    }

    private static DefaultMQPushConsumer push(String[] args, String kind) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1] + "-" + kind);
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName(args[1] + "-" + kind);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (int number = 4; number < args.length; number++) {
            consumer.subscribe(args[number], args[3]);
        }
        return consumer;
    }

    private static void pull(String[] args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args[1] + "-pull");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        Map<MessageQueue, Long> places = new HashMap<>();
        for (int number = 4; number < args.length; number++) {
            queuesOf(consumer, args[number]).forEach(queue -> places.put(queue, 0L));
        }
        while (true) {
            for (MessageQueue queue : places.keySet()) {
                try {
                    PullResult result = consumer.pull(queue, args[3], places.get(queue), 32);
                    places.put(queue, result.getNextBeginOffset());
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        result.getMsgFoundList().forEach(message -> print("pull", message));
                    }
                } catch (MQClientException | RemotingException error) {
                    System.out.println("again after " + error);
                }
            }
            Thread.sleep(100);
        }
    }

    private static Collection<MessageQueue> queuesOf(DefaultMQPullConsumer consumer, String topic) throws InterruptedException {
        while (true) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic);
            } catch (Exception error) {
                System.out.println("again after " + error);
                Thread.sleep(500);
            }
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
