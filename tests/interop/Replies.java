import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's request and reply: "ask" sends requests and prints the replies, "answer" replies. Args: name servers, topic, which, count. */
public class Replies {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "_producers");
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(500);
        producer.setHeartbeatBrokerInterval(500);
        producer.setMqClientApiTimeout(30_000);
        producer.setInstanceName(args[2]);
        producer.start();
        if (args[2].equals("answer")) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answerers");
            consumer.setNamesrvAddr(args[0]);
            consumer.setPollNameServerInterval(500);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    try {
                        Message reply = MessageUtil.createReplyMessage(message, ("reply to " + new String(message.getBody())).getBytes());
                        SendResult result = producer.send(reply, 30_000);
                        System.out.println("replied " + new String(message.getBody()) + " " + result.getSendStatus());
                    } catch (Exception error) {
                        System.out.println("failed " + error.toString().replace('\n', ' '));
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            System.out.println("ready");
        } else {
            for (int number = 0; number < Integer.parseInt(args[3]); number++) {
                Message reply = producer.request(new Message(args[1], ("question-" + number).getBytes()), 120_000);
                System.out.println("got " + new String(reply.getBody()));
            }
            System.out.println("ready");
        }
        Thread.sleep(600_000);
    }
}
