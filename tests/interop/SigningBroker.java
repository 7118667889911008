import java.util.Arrays;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;

/** RocketMQ's broker, which signs what it asks others. Args: access key, secret key, then the broker's own. */
public class SigningBroker {
    public static void main(String[] args) {
        BrokerController controller = BrokerStartup.createBrokerController(Arrays.copyOfRange(args, 2, args.length));
        controller.registerClientRPCHook(new AclClientRPCHook(new SessionCredentials(args[0], args[1])));
        BrokerStartup.start(controller);
    }
}
