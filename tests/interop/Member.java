import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;

/** One member of a group. Args: group, id, peers, base directory, heartbeat in ms, data file size. Stops when stdin ends. */
public class Member {
    public static void main(String[] args) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(args[0]);
        config.setSelfId(args[1]);
        config.setPeers(args[2]);
        config.setStoreBaseDir(args[3]);
        config.setHeartBeatTimeIntervalMs(Integer.parseInt(args[4]));
        config.setMappedFileSizeForEntryData(Integer.parseInt(args[5]));
        config.setMappedFileSizeForEntryIndex(32 * 1024);
        config.setDiskSpaceRatioToCheckExpired(0.99f);
        config.setDiskSpaceRatioToForceClean(0.99f);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        System.out.println("up");
        while (System.in.read() >= 0) {
        }
        server.shutdown();
        System.exit(0);
    }
}
