import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.internals.ConsumedLogs;

/**
 * Runs commands until standard input ends, so that one JVM serves many calls.
 *
 * <p>A request is a command's name (as by {@code writeUTF}), the size of its arguments (int32), and the arguments. The
 * answer is a byte, 0 for a result and 1 for a failure, the size (int32), and the result or the stack trace. A command
 * is a line in {@link #COMMANDS}.
 */
public final class Resident {
    /** Reads its arguments, and writes its result. */
    private interface Command {
        void run(DataInputStream arguments, DataOutputStream result) throws Exception;
    }

    private static final Map<String, Command> COMMANDS =
            new TreeMap<>(
                    Map.of(
                            "consume", ConsumedLogs::consume,
                            "dump", DumpRecords::dump,
                            "produce", ProducedKeys::produce,
                            "tool", Tools::run));

    private Resident() {}

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        System.setOut(System.err);
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                return;
            }
            byte[] arguments = in.readNBytes(in.readInt());
            ByteArrayOutputStream result = new ByteArrayOutputStream();
            int status = 0;
            try {
                Command command = COMMANDS.get(name);
                if (command == null) {
                    throw new IllegalArgumentException("no command " + name + "; expected one of " + COMMANDS.keySet());
                }
                command.run(new DataInputStream(new ByteArrayInputStream(arguments)), new DataOutputStream(result));
            } catch (Exception | Error error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                result.reset();
                result.writeBytes(trace.toString().getBytes(StandardCharsets.UTF_8));
                status = 1;
            }
            out.writeByte(status);
            out.writeInt(result.size());
            result.writeTo(out);
            out.flush();
        }
    }
}
