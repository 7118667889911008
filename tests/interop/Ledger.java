import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.util.HexFormat;
import java.util.Scanner;

/** DLedger's own stores; the last is driven by lines on stdin. Args: data file size, index file size, base directories. */
public class Ledger {
    public static void main(String[] args) throws Exception {
        for (int i = 2; i < args.length; i++) {
            open(args[i], Integer.parseInt(args[0]), Integer.parseInt(args[1]), i == args.length - 1);
        }
        System.exit(0);
    }

    private static void open(String directory, int dataSize, int indexSize, boolean isLast) {
        DLedgerConfig config = new DLedgerConfig();
        config.setStoreBaseDir(directory);
        config.setGroup("g");
        config.setSelfId("n0");
        config.setPeers("n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3");
        config.setMappedFileSizeForEntryData(dataSize);
        config.setMappedFileSizeForEntryIndex(indexSize);
        config.setDiskSpaceRatioToCheckExpired(0.99f);
        config.setDiskSpaceRatioToForceClean(0.99f);
        MemberState state = new MemberState(config);
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, state);
        store.startup();
        Scanner lines = new Scanner(System.in);
        while (isLast && lines.hasNextLine()) {
            String[] words = lines.nextLine().trim().split(" ");
            switch (words[0]) {
                case "lead" -> {
                    state.setCurrTermForTest(Long.parseLong(words[1]));
                    state.changeToLeader(Long.parseLong(words[1]));
                }
                case "follow" -> {
                    state.setCurrTermForTest(Long.parseLong(words[1]));
                    state.changeToFollower(Long.parseLong(words[1]), "n1");
                }
                case "append" -> {
                    DLedgerEntry entry = new DLedgerEntry();
                    entry.setBody(words.length > 1 ? HexFormat.of().parseHex(words[1]) : new byte[0]);
                    store.appendAsLeader(entry);
                }
                case "truncate" -> store.truncate(store.get(Long.parseLong(words[1])), state.currTerm(), "n1");
                case "commit" -> store.updateCommittedIndex(state.currTerm(), Long.parseLong(words[1]));
                default -> throw new IllegalArgumentException(words[0]);
            }
        }
        for (long i = Math.max(0, store.getLedgerBeginIndex()); i <= store.getLedgerEndIndex(); i++) {
            DLedgerEntry e = store.get(i);
            System.out.println("entry " + e.getIndex() + " " + e.getTerm() + " " + e.getPos() + " "
                + HexFormat.of().formatHex(e.getBody()));
        }
        System.out.println("ends " + directory + " " + store.getLedgerBeginIndex() + " " + store.getLedgerEndIndex() + " "
            + store.getLedgerEndTerm() + " " + store.getCommittedIndex() + " " + store.getWritePos());
        store.shutdown();
    }
}
