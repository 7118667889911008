import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's producer and consumer with a message trace, and who reads what they tell. Args: name servers, topic, topic of the trace, count. */
public class Traces {
    public static void main(String[] args) throws Exception {
        consume("readers", args[0], args[2], false, message -> {
            for (String told : new String(message.getBody()).split("\u0002")) {
                System.out.println("traced " + told.split("\u0001")[0]);
            }
        }, args[2]);
        consume("consumers", args[0], args[1], true, message -> System.out.println("consumed " + new String(message.getBody())), args[2]);
        DefaultMQProducer producer = new DefaultMQProducer("producers", true, args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("producers");
        producer.start();
        for (int number = 0; number < Integer.parseInt(args[3]); number++) {
            System.out.println("sent " + producer.send(new Message(args[1], ("message-" + number).getBytes()), 30_000).getSendStatus());
        }
        System.out.println("ready");
        Thread.sleep(600_000);
    }

    private interface Take {
        void take(MessageExt message);
    }

    private static void consume(String group, String nameServers, String topic, boolean isTraced, Take take, String trace) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, isTraced, trace);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(take::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
