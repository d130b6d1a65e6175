package strom.spark;

import java.lang.reflect.Field;
import java.util.Arrays;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.BasePythonRunner;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.execution.datasources.v2.python.*;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.*;
import scala.Option;
import scala.collection.Iterator;

/**
 * The batches of a Python source as columns. Spark's own reader of such a source makes a row of each, which costs more
 * than a sum over them; this one runs the same Python worker and hands on what it sent.
 *
 * <p>It looks behind Spark's doors, where every version may be different: where {@link #possible} finds something else
 * than in 4.3, rows are read as before.
 */
record PythonColumns(PartitionReaderFactory rows, StructType columns) implements PartitionReaderFactory {
  private static final String RUNNER = MapInBatchEvaluatorFactory.class.getName() + "$MapInBatchEvaluator$$anon$1";

  /** Reads columns where this Spark lets us, else rows. */
  static PartitionReaderFactory over(PartitionReaderFactory rows, StructType columns) {
    try {
      Class.forName(RUNNER).getConstructor(evaluator(rows).getClass(), int[][].class);
      return new PythonColumns(rows, columns);
    } catch (ReflectiveOperationException | LinkageError | ClassCastException another) {
      return rows;
    }
  }

  @Override public boolean supportColumnarReads(InputPartition partition) { return true; }

  @Override public PartitionReader<org.apache.spark.sql.catalyst.InternalRow> createReader(InputPartition partition) {
    return rows.createReader(partition);
  }

  @Override public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    try {
      Object evaluator = evaluator(rows);
      Class<?> kind = Class.forName(RUNNER);
      Object made = kind.getConstructor(evaluator.getClass(), int[][].class).newInstance(evaluator, new int[][] {{0}});
      Object task = new GenericInternalRow(new Object[] {((PythonInputPartition) partition).pickedPartition()});
      Iterator<Object> input = Iterator.single(Iterator.single(new GenericInternalRow(new Object[] {task})));
      @SuppressWarnings("unchecked")
      BasePythonRunner<Object, ColumnarBatch> runner = (BasePythonRunner<Object, ColumnarBatch>) made;
      TaskContext context = TaskContext.get();
      return new Reader(runner.compute(input, context.partitionId(), context), columns.length());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException("strom: this Spark reads no columns from Python: " + error, error);
    }
  }

  /** What runs the Python worker of a reader. */
  private static Object evaluator(PartitionReaderFactory rows) throws ReflectiveOperationException {
    UserDefinedPythonDataSource source = (UserDefinedPythonDataSource) of(rows, "source");
    @SuppressWarnings("unchecked")
    Option<String> artifacts = (Option<String>) of(rows, "jobArtifactUUID");
    @SuppressWarnings("unchecked")
    Option<String> session = (Option<String>) of(rows, "sessionUUID");
    return source
        .createMapInBatchEvaluatorFactory(
            (byte[]) of(rows, "pickledReadFunc"),
            "read_from_data_source",
            UserDefinedPythonDataSource.readInputSchema(),
            (StructType) of(rows, "outputSchema"),
            PythonCustomMetric$.MODULE$.pythonMetrics(),
            artifacts,
            session)
        .createEvaluator();
  }

  private static Object of(PartitionReaderFactory rows, String name) throws ReflectiveOperationException {
    String owner = PythonPartitionReaderFactory.class.getName().replace('.', '$');
    Field field = PythonPartitionReaderFactory.class.getField(owner + "$$" + name);
    return field.get(rows);
  }

  /** A batch is one struct; its fields are the columns. */
  private static final class Reader implements PartitionReader<ColumnarBatch> {
    private final Iterator<ColumnarBatch> batches;
    private final ColumnVector[] vectors;
    private int rows;

    Reader(Iterator<ColumnarBatch> batches, int columns) {
      this.batches = batches;
      this.vectors = new ColumnVector[columns];
    }

    @Override public boolean next() {
      boolean more = batches.hasNext();
      if (more) {
        ColumnarBatch batch = batches.next();
        // Spark keeps batches of plain Arrow vectors until a Python function has answered for them, and would read what
        // the next batch has taken over; of any other vector it takes the rows out at once.
        Arrays.setAll(vectors, at -> new ArrowColumn(((ArrowColumnVector) batch.column(0)).getChild(at)));
        rows = batch.numRows();
      }
      return more;
    }

    @Override public ColumnarBatch get() { return new ColumnarBatch(vectors.clone(), rows); }

    @Override public void close() {}
  }
}
