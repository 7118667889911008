import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * RocketMQ's transactional producer, or a consumer. Args: name servers, topic, then "consume", or the keys of messages to be sent:
 * what happens to each stands before the first dash (commit, rollback, later_commit, later_rollback, never); no key: it only answers.
 * Each is tried until it is sent: routes, and a leader, may have to be waited for.
 * With the property "account" (access key, /, secret key) it signs.
 */
public class Transactions {
    public static void main(String[] args) throws Exception {
        if (args.length > 2 && args[2].equals("consume")) {
            consume(args[0], args[1]);
            return;
        }
        TransactionMQProducer producer = new TransactionMQProducer("transactors", hook());
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(500);
        producer.setHeartbeatBrokerInterval(500);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return stateOf(message.getKeys());
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String key = message.getKeys();
                System.out.println("asked " + key + " " + message.getProperty("TRANSACTION_CHECK_TIMES") + " " + message.getTopic() + " "
                    + message.getQueueId() + " " + message.getTransactionId().equals(message.getProperty("UNIQ_KEY")) + " " + new String(message.getBody()).length());
                return stateOf(key.startsWith("later_") ? key.substring(6) : key);
            }
        });
        producer.start();
        for (int number = 2; number < args.length; number++) {
            String key = args[number];
            Message message = new Message(args[1], "tag", key, (key + " ").repeat(key.endsWith("big") ? 3000 : 1).getBytes());
            message.setFlag(7);
            message.putUserProperty("mine", key);
            TransactionSendResult result = sendAtLast(producer, message);
            System.out.println("sent " + key + " " + result.getSendStatus() + " " + result.getLocalTransactionState());
        }
        System.out.println("ready");
        Thread.sleep(600_000);
    }

    private static TransactionSendResult sendAtLast(TransactionMQProducer producer, Message message) throws InterruptedException {
        while (true) {
            try {
                return producer.sendMessageInTransaction(message, null);
            } catch (MQClientException error) {
                System.out.println("again after " + error.toString().replace('\n', ' '));
                Thread.sleep(500);
            }
        }
    }

    private static RPCHook hook() {
        String account = System.getProperty("account");
        return account == null ? null : new AclClientRPCHook(new SessionCredentials(account.split("/")[0], account.split("/")[1]));
    }

    private static LocalTransactionState stateOf(String key) {
        switch (key.split("-")[0]) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    private static void consume(String nameServers, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("readers", hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println("got " + message.getKeys() + " " + message.getTransactionId().equals(message.getMsgId()) + " " + message.getFlag()
                    + " " + message.getProperty("mine") + " " + new String(message.getBody()).trim().split(" ").length);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        Thread.sleep(600_000);
    }
}
