package strom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.github.luben.zstd.Zstd;
import java.io.IOException;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.v2.FilePartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.*;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;

/**
 * Files of the lake that one task reads by Spark's own Parquet reader; of each, bits of the rows that do not count, packed
 * by zstd, and how many bytes these are.
 */
record LakeFiles(List<PartitionedFile> files, List<byte[]> dead, List<Integer> bytes) implements InputPartition {
  static LakeFiles of(JsonNode told) {
    LakeFiles found = new LakeFiles(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
    for (JsonNode one : told) {
      SparkPath path = SparkPath.fromPathString(one.get(0).asText());
      long size = one.get(1).asLong();
      found.files.add(new PartitionedFile(
          InternalRow.empty(), path, 0, size, new String[0], 0, size, Map$.MODULE$.empty()));
      found.dead.add(Base64.getDecoder().decode(one.get(2).asText()));
      found.bytes.add(one.get(3).asInt());
    }
    return found;
  }

  /** Both tiers of a table: tasks of the Python source, and files as they were planned. */
  record Both(Batch hot, List<LakeFiles> cold, Readers readers) implements Batch {
    /** Null where this Spark, its settings or its file systems are not such that it can read the files. */
    static Batch of(Batch hot, StructType columns, JsonNode groups, String schema, Filter[] filters) {
      PartitionReaderFactory rows = PythonColumns.over(hot.createReaderFactory(), columns);
      List<LakeFiles> cold = new ArrayList<>();
      groups.forEach(group -> cold.add(LakeFiles.of(group)));
      if (cold.isEmpty()) {
        return new Both(hot, cold, new Readers(rows, null, null));
      }
      Path first = cold.get(0).files.get(0).toPath();
      StructType all = (StructType) DataType.fromJson(schema);
      if (!List.of(all.fieldNames()).containsAll(List.of(columns.fieldNames()))) return null;
      StructType known = new StructType(Arrays.stream(columns.fieldNames()).map(all::apply).toArray(StructField[]::new));
      PartitionReaderFactory files = reader(first, known, new Filter[0]);
      Filter[] some = plain(filters, known);
      PartitionReaderFactory sieve = some.length == 0 ? files : reader(first, known, some);
      return files == null || !(rows instanceof PythonColumns) ? null : new Both(hot, cold, new Readers(rows, files, sieve));
    }

    /**
     * By what the reader may leave out row groups. Not by floats: statistics leave NaN out in files of other writers, and
     * in dictionaries -0.0 is not 0.0.
     */
    private static Filter[] plain(Filter[] filters, StructType columns) {
      Set<String> names = new HashSet<>();
      for (StructField one : columns.fields()) {
        boolean other = one.dataType() instanceof FloatType || one.dataType() instanceof DoubleType;
        if (!other && one.dataType() instanceof AtomicType) names.add(one.name());
      }
      return Arrays.stream(filters).filter(one -> names.containsAll(List.of(one.references()))).toArray(Filter[]::new);
    }

    private static PartitionReaderFactory reader(Path path, StructType columns, Filter[] filters) {
      try {
        SparkSession spark = (SparkSession) SparkSession.active();
        Configuration settings = spark.sessionState().newHadoopConf();
        if (!path.getFileSystem(settings).exists(path)) {
          return null;
        }
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(Map.of("datetimeRebaseMode", "CORRECTED"));
        PartitionReaderFactory found = new ParquetScan(
            spark, settings, null, columns, columns, new StructType(), filters, options, Option.empty(),
            (scala.collection.immutable.Seq) Nil$.MODULE$, (scala.collection.immutable.Seq) Nil$.MODULE$,
            new VariantExtraction[0]).createReaderFactory();
        return found.supportColumnarReads(null) ? found : null;
      } catch (IOException | RuntimeException | LinkageError another) {
        return null;
      }
    }

    @Override public InputPartition[] planInputPartitions() {
      List<InputPartition> all = new ArrayList<>(List.of(hot.planInputPartitions()));
      all.addAll(cold);
      return all.toArray(InputPartition[]::new);
    }

    @Override public PartitionReaderFactory createReaderFactory() { return cold.isEmpty() ? readers.rows : readers; }
  }

  /** Of rows from Python; of files; of files of which every row counts, where row groups may be left out. */
  record Readers(PartitionReaderFactory rows, PartitionReaderFactory files, PartitionReaderFactory sieve)
      implements PartitionReaderFactory {
    @Override public boolean supportColumnarReads(InputPartition partition) { return true; }

    @Override public PartitionReader<InternalRow> createReader(InputPartition partition) { return rows.createReader(partition); }

    @Override public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return partition instanceof LakeFiles mine
          ? new Reader(this, mine)
          : rows.createColumnarReader(partition);
    }
  }

  /** One file after the other, each from its first row to its last. */
  private static final class Reader implements PartitionReader<ColumnarBatch> {
    private final Readers readers;
    private final LakeFiles mine;
    private PartitionReader<ColumnarBatch> open;
    private ColumnarBatch batch;
    private byte[] dead;
    private int[] places = new int[0];
    private int next, row;

    Reader(Readers readers, LakeFiles mine) {
      this.readers = readers;
      this.mine = mine;
    }

    @Override public boolean next() throws IOException {
      do {
        while (open == null || !open.next()) {
          close();
          if (next == mine.files.size()) return false;
          row = 0;
          dead = mine.bytes.get(next) == 0 ? null : Zstd.decompress(mine.dead.get(next), mine.bytes.get(next));
          PartitionReaderFactory reader = dead == null ? readers.sieve : readers.files;
          open = ((FilePartitionReaderFactory) reader).buildColumnarReader(mine.files.get(next++));
        }
        batch = dead == null ? open.get() : alive(open.get());
      } while (batch.numRows() == 0);
      return true;
    }

    /** The rows of a batch whose bits are not set. */
    private ColumnarBatch alive(ColumnarBatch all) {
      int rows = all.numRows();
      int count = 0;
      places = places.length < rows ? new int[rows] : places;
      for (int at = 0, bit = row; at < rows; at++, bit++) {
        places[count] = at;
        count += 1 - (dead[bit >> 3] >> (bit & 7) & 1);
      }
      row += rows;
      return count == rows ? all : KeptRows.of(all, places, count);
    }

    @Override public ColumnarBatch get() { return batch; }

    @Override public void close() throws IOException {
      if (open != null) {
        open.close();
        open = null;
      }
    }
  }
}
