import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.fluss.client.Connection;
import org.apache.fluss.client.ConnectionFactory;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.lookup.Lookuper;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.log.LogScanner;
import org.apache.fluss.client.table.scanner.log.ScanRecords;
import org.apache.fluss.client.table.writer.AppendWriter;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.Schema;
import org.apache.fluss.metadata.TableBucket;
import org.apache.fluss.metadata.TableDescriptor;
import org.apache.fluss.metadata.TablePath;
import org.apache.fluss.row.BinaryString;
import org.apache.fluss.row.GenericRow;
import org.apache.fluss.row.InternalRow;
import org.apache.fluss.types.DataTypes;

/**
 * Writes into tables with three copies, and looks up what it wrote, until somebody writes to its standard input; then it
 * reads everything back. It prints a line for each round, and ends with 1 if a row is missing, doubled or another one.
 *
 * <p>Arguments: the address, and a word for the names of the tables.
 */
public final class SurvivingProgram {
    private static final int BUCKETS = 3;
    private static final int ROWS = 50;
    private static final int KEYS = 20;
    private static final int PATIENCE_S = 60;

    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("bootstrap.servers", words[0]);
        try (Connection connection = ConnectionFactory.createConnection(settings)) {
            TablePath log = TablePath.of("fluss", words[1] + "_log");
            TablePath keys = TablePath.of("fluss", words[1] + "_keys");
            make(connection, log, columns().build());
            make(connection, keys, columns().primaryKey("number").build());
            long rounds = write(connection, log, keys);
            check(connection, log, rounds * ROWS);
            System.out.println("whole " + rounds);
        }
    }

    private static Schema.Builder columns() {
        return Schema.newBuilder().column("number", DataTypes.BIGINT()).column("text", DataTypes.STRING());
    }

    private static void make(Connection connection, TablePath path, Schema schema) throws Exception {
        TableDescriptor table =
                TableDescriptor.builder()
                        .schema(schema)
                        .distributedBy(BUCKETS)
                        .property("table.replication.factor", "3")
                        .build();
        try (Admin admin = connection.getAdmin()) {
            admin.createTable(path, table, false).get(PATIENCE_S, TimeUnit.SECONDS);
        }
    }

    private static long write(Connection connection, TablePath log, TablePath keys) throws Exception {
        long round = 0;
        try (Table logTable = connection.getTable(log); Table keyTable = connection.getTable(keys)) {
            AppendWriter appends = logTable.newAppend().createWriter();
            UpsertWriter upserts = keyTable.newUpsert().createWriter();
            Lookuper lookups = keyTable.newLookup().createLookuper();
            while (!told()) {
                List<CompletableFuture<?>> asked = new ArrayList<>();
                for (long number = round * ROWS; number < (round + 1) * ROWS; number++) {
                    asked.add(appends.append(row(number, round)));
                }
                for (long key = 0; key < KEYS; key++) {
                    asked.add(upserts.upsert(row(key, round)));
                }
                appends.flush();
                upserts.flush();
                for (CompletableFuture<?> one : asked) {
                    one.get(PATIENCE_S, TimeUnit.SECONDS);
                }
                long key = round % KEYS;
                InternalRow found =
                        lookups.lookup(GenericRow.of(key)).get(PATIENCE_S, TimeUnit.SECONDS).getSingletonRow();
                same(key, "round " + round, found);
                round++;
                System.out.println("round " + round);
            }
        }
        return round;
    }

    private static void check(Connection connection, TablePath path, long rows) throws Exception {
        Map<Integer, Long> next = new HashMap<>();
        boolean[] seen = new boolean[(int) rows];
        long left = rows;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        try (Table table = connection.getTable(path);
                LogScanner scanner = table.newScan().createLogScanner()) {
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                scanner.subscribeFromBeginning(bucket);
            }
            while (left > 0) {
                require(System.nanoTime() < deadline, left + " of " + rows + " rows are missing");
                ScanRecords found = scanner.poll(Duration.ofSeconds(1));
                for (TableBucket bucket : found.buckets()) {
                    for (ScanRecord one : found.records(bucket)) {
                        long offset = next.merge(bucket.getBucket(), 1L, Long::sum) - 1;
                        require(one.logOffset() == offset, bucket + " goes from " + offset + " to " + one.logOffset());
                        long number = one.getRow().getLong(0);
                        same(number, "round " + number / ROWS, one.getRow());
                        require(!seen[(int) number], "row " + number + " is there twice");
                        seen[(int) number] = true;
                        left--;
                    }
                }
            }
        }
    }

    private static GenericRow row(long number, long round) {
        return GenericRow.of(number, BinaryString.fromString("round " + round));
    }

    private static void same(long number, String text, InternalRow found) {
        require(found != null, "row " + number + " is not found");
        require(
                found.getLong(0) == number && found.getString(1).toString().equals(text),
                "row " + number + " is (" + found.getLong(0) + ", " + found.getString(1) + "), not " + text);
    }

    private static boolean told() throws Exception {
        return System.in.available() > 0;
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            System.out.println(otherwise);
            System.exit(1);
        }
    }
}
