import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/** Runs a command-line tool of Kafka by its main class; the result is its exit status, and its standard output. */
final class Tools {
    /** Ends a tool instead of the JVM. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
        private final int status;

        Ended(int status) {
            super("status " + status);
            this.status = status;
        }
    }

    // Of all calls: Scala's Console keeps the standard output that its first tool found.
    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    private static final PrintStream OUT = new PrintStream(PRINTED, true, StandardCharsets.UTF_8);

    private Tools() {}

    static void run(DataInputStream arguments, DataOutputStream result) throws Exception {
        String main = arguments.readUTF();
        String[] words = new String[arguments.readInt()];
        for (int number = 0; number < words.length; number++) {
            words[number] = arguments.readUTF();
        }
        PrintStream out = System.out;
        PRINTED.reset();
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        System.setOut(OUT);
        try {
            result.writeInt(status(main, words));
        } finally {
            System.setOut(out);
            Exit.resetExitProcedure();
        }
        OUT.flush();
        PRINTED.writeTo(result);
    }

    private static int status(String main, String[] words) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) words);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                return ((Ended) error.getCause()).status;
            }
            throw error;
        }
    }
}
