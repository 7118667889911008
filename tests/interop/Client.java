import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;

/** DLedger's own client: appends entries, once it knows the leader, then reads them. Args: group, peers, count. */
public class Client {
    public static void main(String[] args) throws Exception {
        DLedgerClient client = new DLedgerClient(args[0], args[1]);
        client.startup();
        int count = Integer.parseInt(args[2]);
        long[] indexes = new long[count];
        for (int i = 0; i < count; i++) {
            AppendEntryResponse answer;
            do {
                answer = client.append(("java " + i).getBytes());
            } while (answer.getCode() == DLedgerResponseCode.METADATA_ERROR.getCode());
            indexes[i] = answer.getIndex();
            System.out.println("append " + answer.getCode() + " " + answer.getIndex() + " " + answer.getTerm() + " " + answer.getPos());
        }
        for (long index : indexes) {
            GetEntriesResponse answer = client.get(index);
            DLedgerEntry entry = answer.getEntries().isEmpty() ? null : answer.getEntries().get(0);
            System.out.println("get " + answer.getCode() + " " + (entry == null ? "" : new String(entry.getBody())));
        }
        client.shutdown();
        System.exit(0);
    }
}
