import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;

/** A member of a group. Args: group, id, peers, base directory, heartbeat in ms, size of a data file and of an index file. */
public class Member {
    public static void main(String[] args) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(args[0]);
        config.setSelfId(args[1]);
        config.setPeers(args[2]);
        config.setStoreBaseDir(args[3]);
        config.setHeartBeatTimeIntervalMs(Integer.parseInt(args[4]));
        config.setMappedFileSizeForEntryData(Integer.parseInt(args[5]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(args[6]));
        config.setDiskSpaceRatioToCheckExpired(0.99f);
        config.setDiskSpaceRatioToForceClean(0.99f);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        System.out.println("member " + args[1] + " started");
        Thread.currentThread().join();
    }
}
