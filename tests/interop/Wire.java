import com.alibaba.fastjson.JSON;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.*;
import org.apache.rocketmq.remoting.protocol.*;
import java.util.*;

/** Every message of DLedger as its own classes and fastjson write it, in frames of both header types: name, frame in hex. */
public class Wire {
    static <T extends RequestOrResponse> T base(T m, String leader, String local, String remote, long term) {
        m.setGroup("g1"); m.setLeaderId(leader); m.setLocalId(local); m.setRemoteId(remote); m.setTerm(term);
        return m;
    }
    static DLedgerEntry entry(long index, String body) {
        DLedgerEntry e = new DLedgerEntry();
        e.setIndex(index); e.setTerm(1); e.setMagic(1); e.setBody(body.getBytes()); e.setPos(index * 54); e.computeSizeInBytes();
        return e;
    }
    static int opaque = 100;
    static void out(String name, int code, boolean response, Object m) throws Exception {
        for (SerializeType type : SerializeType.values()) {
            RemotingCommand c = RemotingCommand.createRequestCommand(code, null);
            c.setOpaque(opaque);
            c.setSerializeTypeCurrentRPC(type);
            if (response) { c.setCode(200); c.markResponseType(); }
            c.setBody(JSON.toJSONBytes(m));
            System.out.println(name + " " + type + " " + HexFormat.of().formatHex(c.encode().array()));
        }
        opaque++;
    }
    public static void main(String[] a) throws Exception {
        out("METADATA", 50000, false, base(new MetadataRequest(), null, null, "n1", -1));
        MetadataResponse meta = base(new MetadataResponse(), "n0", null, null, -1);
        meta.setPeers(new TreeMap<>(Map.of("n0", "127.0.0.1:1000", "n1", "127.0.0.1:1001")));
        out("METADATA.ok", 50000, true, meta);
        AppendEntryRequest app = base(new AppendEntryRequest(), null, null, "n0", -1); app.setBody("hello0".getBytes());
        out("APPEND", 50001, false, app);
        AppendEntryResponse appOk = base(new AppendEntryResponse(), "n0", null, null, 1); appOk.setIndex(0); appOk.setPos(0);
        out("APPEND.ok", 50001, true, appOk);
        AppendEntryResponse app404 = new AppendEntryResponse(); app404.copyBaseInfo(app); app404.setCode(404); app404.setLeaderId("n2");
        out("APPEND.refused", 50001, true, app404);
        GetEntriesRequest get = base(new GetEntriesRequest(), null, null, "n0", -1); get.setBeginIndex(7L);
        out("GET", 50002, false, get);
        GetEntriesResponse getOk = base(new GetEntriesResponse(), null, null, null, -1); getOk.setEntries(List.of(entry(7, "hello7")));
        out("GET.ok", 50002, true, getOk);
        GetEntriesResponse get410 = new GetEntriesResponse(); get410.copyBaseInfo(get); get410.setCode(410); get410.setLeaderId("n0");
        out("GET.refused", 50002, true, get410);
        VoteRequest vote = base(new VoteRequest(), "n0", "n0", "n1", 1);
        out("VOTE", 51001, false, vote);
        VoteResponse voteOk = new VoteResponse(vote); voteOk.setTerm(1); voteOk.setVoteResult(VoteResponse.RESULT.ACCEPT);
        out("VOTE.ok", 51001, true, voteOk);
        out("HEART_BEAT", 51002, false, base(new HeartBeatRequest(), "n0", "n0", "n1", 3));
        out("HEART_BEAT.ok", 51002, true, new HeartBeatResponse());
        HeartBeatResponse hb = new HeartBeatResponse(); hb.code(403); hb.term(5);
        out("HEART_BEAT.refused", 51002, true, hb);
        PushEntryRequest push = base(new PushEntryRequest(), "n0", "n0", "n2", 1);
        push.setEntry(entry(1, "hello1")); push.setCommitIndex(0); push.setType(PushEntryRequest.Type.APPEND);
        out("PUSH", 51004, false, push);
        PushEntryRequest batch = base(new PushEntryRequest(), "n0", "n0", "n2", 1);
        batch.addEntry(entry(2, "hello2")); batch.addEntry(entry(3, "hello3")); batch.setCommitIndex(1); batch.setType(PushEntryRequest.Type.APPEND);
        out("PUSH.batch", 51004, false, batch);
        PushEntryRequest commit = base(new PushEntryRequest(), "n0", "n0", "n2", 1);
        commit.setCommitIndex(5); commit.setType(PushEntryRequest.Type.COMMIT);
        out("PUSH.commit", 51004, false, commit);
        for (PushEntryRequest.Type t : List.of(PushEntryRequest.Type.COMPARE, PushEntryRequest.Type.TRUNCATE)) {
            push.setType(t); out("PUSH." + t.toString().toLowerCase(), 51004, false, push);
        }
        PushEntryResponse pushOk = base(new PushEntryResponse(), null, null, null, 1);
        pushOk.setIndex(1L); pushOk.setBeginIndex(0); pushOk.setEndIndex(1); pushOk.setCount(1);
        out("PUSH.ok", 51004, true, pushOk);
        PushEntryResponse commitOk = base(new PushEntryResponse(), null, null, null, 1); commitOk.setEndIndex(5);
        out("PUSH.commit.ok", 51004, true, commitOk);
        LeadershipTransferRequest t = base(new LeadershipTransferRequest(), null, null, "n0", 2); t.setTransferId("n0"); t.setTransfereeId("n1");
        out("LEADERSHIP_TRANSFER", 51005, false, t);
        LeadershipTransferRequest t2 = base(new LeadershipTransferRequest(), "n0", "n0", "n1", 2); t2.setTransferId("n0"); t2.setTransfereeId("n1"); t2.setTakeLeadershipLedgerIndex(54);
        out("LEADERSHIP_TRANSFER.take", 51005, false, t2);
        LeadershipTransferResponse tr = new LeadershipTransferResponse(); tr.setTerm(3); tr.setCode(200);
        out("LEADERSHIP_TRANSFER.ok", 51005, true, tr);
    }
}
