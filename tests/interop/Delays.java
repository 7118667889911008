import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * RocketMQ's producer of delayed messages, or a consumer that cannot consume all of them. Args: name servers, topic, and "send" with
 * keys, each with its level before a colon, and tried until it is sent; or "consume", a group, how often a message may come again at most, and the level of that, 0
 * for RocketMQ's own. It asks name servers, and sends heartbeats, every 500 ms, or as often as the property "interval" says. What it may not consume: keys that begin with "bad" never, with "twice" the first two times.
 */
public class Delays {
    public static void main(String[] args) throws Exception {
        if (args[2].equals("consume")) {
            consume(args[0], args[1], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            return;
        }
        DefaultMQProducer producer = new DefaultMQProducer("delayers");
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(500);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        for (int number = 3; number < args.length; number++) {
            String[] words = args[number].split(":");
            Message message = new Message(args[1], "tag", words[1], words[1].getBytes());
            message.setDelayTimeLevel(Integer.parseInt(words[0]));
            message.putUserProperty("sent", String.valueOf(System.currentTimeMillis()));
            SendResult result = sendAtLast(producer, message);
            System.out.println("sent " + words[1] + " " + result.getSendStatus() + " " + result.getMessageQueue().getQueueId());
        }
        System.out.println("ready");
        producer.shutdown();
        System.exit(0);
    }

    private static SendResult sendAtLast(DefaultMQProducer producer, Message message) throws InterruptedException {
        while (true) {
            try {
                return producer.send(message);
            } catch (MQClientException | MQBrokerException | RemotingException error) {
                System.out.println("again after " + error.toString().replace('\n', ' '));
                Thread.sleep(500);
            }
        }
    }

    private static void consume(String nameServers, String topic, String group, int times, int level) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(Integer.getInteger("interval", 500));
        consumer.setHeartbeatBrokerInterval(Integer.getInteger("interval", 500));
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(times);
        consumer.subscribe(topic, topic.startsWith("%") ? "*" : "tag");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String key = message.getKeys();
            long after = System.currentTimeMillis() - Long.parseLong(message.getProperty("sent"));
            boolean isBad = key.startsWith("bad") || key.startsWith("twice") && message.getReconsumeTimes() < 2;
            System.out.println("got " + key + " " + message.getReconsumeTimes() + " " + after + " " + message.getTopic() + " "
                + message.getProperty("RETRY_TOPIC") + " " + new String(message.getBody()).equals(key));
            context.setDelayLevelWhenNextConsume(level);
            return isBad && !topic.startsWith("%") ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("ready");
        Thread.sleep(600_000);
    }
}
