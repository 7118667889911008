import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** What each of some accounts may do with the topic "orders". Args: name server, then accessKey/secretKey or nobody, ... */
public class Acl {
    public static void main(String[] args) throws Exception {
        waitForRoutes(args[0]);
        for (String account : Arrays.copyOfRange(args, 1, args.length)) {
            String[] keys = account.split("/");
            RPCHook hook = keys.length == 2 ? new AclClientRPCHook(new SessionCredentials(keys[0], keys[1])) : null;
            String name = keys.length == 2 && keys[1].startsWith("wrong") ? "forger" : keys[0];
            DefaultMQProducer producer = new DefaultMQProducer("senders", hook);
            producer.setNamesrvAddr(args[0]);
            producer.setInstanceName(name);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setSendMsgTimeout(30_000);
            producer.setMqClientApiTimeout(30_000);
            producer.start();
            attempt(name, "send", () -> producer.send(new Message("orders", "by".getBytes())).getSendStatus());
            attempt(name, "other", () -> producer.send(new Message("others", "by".getBytes())).getSendStatus());
            attempt(name, "delay", () -> {
                Message message = new Message("orders", "late".getBytes());
                message.setDelayTimeLevel(1);
                return producer.send(message).getSendStatus();
            });
            attempt(name, "batch", () -> producer.send(batch()).getSendStatus());
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers", hook);
            consumer.setNamesrvAddr(args[0]);
            consumer.setInstanceName(name);
            consumer.setConsumerPullTimeoutMillis(30_000);
            consumer.setMqClientApiTimeout(30_000);
            consumer.start();
            MessageQueue queue = consumer.fetchSubscribeMessageQueues("orders").iterator().next();
            attempt(name, "pull", () -> consumer.pull(queue, "*", 0, 1).getPullStatus() == null ? "" : "SEND_OK");
            attempt(name, "create", () -> {
                producer.createTopic("orders", "made-by-" + name, 4);
                return "SEND_OK";
            });
        }
        System.out.println("done");
        for (String account : Arrays.copyOfRange(args, 1, args.length)) {
            if (account.startsWith("consumer")) {
                push(args[0], account.split("/"));
            }
        }
    }

    /** To the topic, and to what new topics are made of. */
    private static void waitForRoutes(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("waiting");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("waiting");
        consumer.start();
        for (String topic : List.of("orders", "TBW102")) {
            while (true) {
                try {
                    consumer.fetchSubscribeMessageQueues(topic);
                    break;
                } catch (MQClientException unknown) {
                    Thread.sleep(200);
                }
            }
        }
        consumer.shutdown();
    }

    private static List<Message> batch() {
        List<Message> messages = new ArrayList<>();
        messages.add(new Message("orders", "one".getBytes()));
        messages.add(new Message("orders", "two".getBytes()));
        return messages;
    }

    private static void push(String nameServer, String[] keys) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(keys[0], keys[1]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("workers", hook,
            new org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("push");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            String body = new String(messages.get(0).getBody());
            int times = messages.get(0).getReconsumeTimes();
            System.out.println("consumed " + body + " " + times);
            boolean again = times == 0 && body.equals("late");
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void attempt(String name, String what, Callable<Object> action) {
        String outcome;
        try {
            outcome = String.valueOf(action.call());
        } catch (Exception error) {
            StringBuilder causes = new StringBuilder();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                causes.append(cause);
            }
            String text = causes.toString();
            boolean refused = text.contains("AclException") && text.contains("CODE: 1 ");
            outcome = refused ? "refused" : "failed: " + text.replaceAll("\\s+", " ");
        }
        System.out.println(name + " " + what + " " + outcome);
    }
}
