import java.io.File;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's producers under load, an ordinary one, one whose messages have an order in each queue, and one with transactions that are all
 * committed: now, or if it is asked. They send until a file is there; the last one then goes on answering. Args: name servers, topic, the file.
 */
public class Senders {
    private interface Send {
        SendResult send(int number) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer("ordinary"), args[0]);
        DefaultMQProducer orderly = started(new DefaultMQProducer("ordered"), args[0]);
        TransactionMQProducer transactional = new TransactionMQProducer("transactional");
        transactional.setTransactionListener(new Commits());
        started(transactional, args[0]);
        CountDownLatch ended = new CountDownLatch(3);
        load("ordinary", args[2], ended, number -> producer.send(message(args[1], "ordinary-" + number)));
        load("ordered", args[2], ended, number -> orderly.send(message(args[1], "ordered-" + number),
            (queues, message, line) -> queues.get((Integer) line % queues.size()), number));
        load("committed", args[2], ended, number -> transactional.sendMessageInTransaction(message(args[1], "committed-" + number), null));
        System.out.println("started");
        ended.await();
        System.out.println("ended");
        Thread.sleep(600_000);
    }

    private static <T extends DefaultMQProducer> T started(T producer, String nameServers) throws Exception {
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName(producer.getProducerGroup());
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setMqClientApiTimeout(20_000);
        producer.setSendMsgTimeout(8_000); // so long it waits for a broker that was killed
        producer.start();
        return producer;
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "tag", body, body.getBytes());
    }

    private static void load(String way, String end, CountDownLatch ended, Send send) {
        new Thread(() -> {
            for (int number = 0; !new File(end).exists(); number++) {
                try {
                    SendResult result = send.send(number);
                    boolean isSafe = result.getSendStatus() == SendStatus.SEND_OK;
                    System.out.println((isSafe ? "acknowledged " : "stored ") + way + "-" + number);
                    Thread.sleep(30);
                } catch (Exception error) {
                    System.out.println("failed " + way + "-" + number);
                    pause();
                }
            }
            ended.countDown();
        }).start();
    }

    private static void pause() {
        try {
            Thread.sleep(300);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static class Commits implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
