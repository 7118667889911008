import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * Hadoop's local files, where threads stop for good before renames that the environment's STOP_AT names.
 *
 * <p>Each of its lines is some regular expressions, with a blank between them. Who is about to rename a file to what the
 * first finds strikes that out; who strikes out a line's last one makes the file STOPPED-n (n: number of the line), and
 * goes no further. Committing is renaming, to Spark's checkpoints and to the tables of both formats.
 */
public class StoppingFiles extends LocalFileSystem {
    private static final List<Queue<Pattern>> LINES = lines();

    public StoppingFiles() {
        super(new Raw());
    }

    private static List<Queue<Pattern>> lines() {
        List<Queue<Pattern>> lines = new ArrayList<>();
        for (String line : System.getenv("STOP_AT").split("\n")) {
            Queue<Pattern> patterns = new ArrayDeque<>();
            for (String pattern : line.split(" ")) {
                patterns.add(Pattern.compile(pattern));
            }
            lines.add(patterns);
        }
        return lines;
    }

    /** The number of the line that ends with a rename to this path, or -1. */
    private static synchronized int lineThatEnds(String path) {
        for (int number = 0; number < LINES.size(); number++) {
            Queue<Pattern> line = LINES.get(number);
            if (!line.isEmpty() && line.peek().matcher(path).find()) {
                line.remove();
                if (line.isEmpty()) {
                    return number;
                }
            }
        }
        return -1;
    }

    /** The files without their checksums, which are files of their own. */
    public static class Raw extends RawLocalFileSystem {
        @Override
        public boolean rename(Path from, Path to) throws IOException {
            int line = lineThatEnds(to.toUri().getPath());
            if (line >= 0) {
                Files.createFile(java.nio.file.Path.of(System.getenv("STOPPED") + "-" + line));
                while (true) {
                    try {
                        Thread.sleep(Long.MAX_VALUE);
                    } catch (InterruptedException stopping) {
                        // not before it is killed
                    }
                }
            }
            return super.rename(from, to);
        }
    }

    /** The same for Hadoop's other kind of file systems. */
    public static class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws Exception {
            super(new RawContext(uri, conf));
        }
    }

    private static class RawContext extends DelegateToFileSystem {
        RawContext(URI uri, Configuration conf) throws Exception {
            super(uri, new Raw(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }
}
