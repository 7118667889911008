import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** RocketMQ's clients: one sends numbers, each until SEND_OK, the other prints what it pulls. Args: name servers, topic. */
public class Numbers {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("writers");
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(500);
        producer.start();
        send(producer, args[1], 0);
        Thread reader = new Thread(() -> read(args[0], args[1]));
        reader.start();
        for (int number = 1; reader.isAlive(); number++) {
            send(producer, args[1], number);
            Thread.sleep(20);
        }
    }

    private static void send(DefaultMQProducer producer, String topic, int number) throws Exception {
        while (true) {
            try {
                Message message = new Message(topic, String.valueOf(number).getBytes());
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    System.out.println("sent " + number);
                    return;
                }
            } catch (Exception error) {
                System.out.println("failed " + error.toString().replace('\n', ' '));
            }
            Thread.sleep(200);
        }
    }

    private static void read(String nameServers, String topic) {
        try {
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers");
            consumer.setNamesrvAddr(nameServers);
            consumer.setPollNameServerInterval(500);
            consumer.setHeartbeatBrokerInterval(1000);
            consumer.setPersistConsumerOffsetInterval(1000);
            consumer.setConsumerPullTimeoutMillis(3000);
            consumer.start();
            Map<MessageQueue, Long> nextOffsets = new HashMap<>();
            queuesOf(consumer, topic).forEach(queue -> nextOffsets.put(queue, 0L));
            while (true) {
                for (MessageQueue queue : nextOffsets.keySet()) {
                    nextOffsets.put(queue, pull(consumer, queue, nextOffsets.get(queue)));
                }
                Thread.sleep(20);
            }
        } catch (Exception error) {
            System.out.println("reader ended: " + error);
        }
    }

    private static Set<MessageQueue> queuesOf(DefaultMQPullConsumer consumer, String topic) throws Exception {
        while (true) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic);
            } catch (MQClientException unknown) {
                Thread.sleep(200);
            }
        }
    }

    private static long pull(DefaultMQPullConsumer consumer, MessageQueue queue, long offset) throws Exception {
        try {
            PullResult found = consumer.pull(queue, "*", offset, 32);
            if (found.getPullStatus() != PullStatus.FOUND) {
                return offset;
            }
            for (MessageExt message : found.getMsgFoundList()) {
                System.out.println("got " + new String(message.getBody()));
            }
            consumer.updateConsumeOffset(queue, found.getNextBeginOffset());
            return found.getNextBeginOffset();
        } catch (MQClientException | MQBrokerException | RemotingException error) {
            System.out.println("waits " + error.toString().replace('\n', ' '));
            return offset;
        }
    }
}
