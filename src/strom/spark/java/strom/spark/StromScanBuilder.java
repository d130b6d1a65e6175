package strom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import java.util.function.Supplier;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.connector.PredicateUtils;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What a query wants of a table, as columns and options of the Python source. */
final class StromScanBuilder
    implements SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final StromTable table;
  private final PythonSide python;
  private final Identifier identifier;
  private final Map<String, String> wanted = new TreeMap<>();
  private StructType columns;
  private Predicate[] pushed = new Predicate[0];
  private Filter[] filters = new Filter[0];
  private long rowsAtMost = Long.MAX_VALUE;
  private JsonNode count;
  private boolean counted;

  StromScanBuilder(StromTable table, PythonSide python, Identifier identifier) {
    this.table = table;
    this.python = python;
    this.identifier = identifier;
    this.columns = table.schema();
  }

  /** Python says which of these the servers answer exactly; Spark asks the others of every row again. */
  @Override public Predicate[] pushPredicates(Predicate[] predicates) {
    JsonNode answer = python.ask("filter", identifier, Map.of("predicates", PythonSide.tree(predicates)));
    List<Predicate> left = new ArrayList<>(List.of(predicates));
    PythonSide.texts(answer.get("exact")).forEach(one -> left.remove(predicates[Integer.parseInt(one)]));
    pushed = Arrays.stream(predicates).filter(one -> !left.contains(one)).toArray(Predicate[]::new);
    filters = PredicateUtils.toV1(predicates);
    wanted.putAll(PythonSide.map(answer.get("options")));
    rowsAtMost = answer.get("rows").asLong(Long.MAX_VALUE);
    return left.toArray(Predicate[]::new);
  }

  @Override public Predicate[] pushedPredicates() { return pushed; }

  /** Whole columns: of a struct the servers send all fields or none. No column at all is the smallest one. */
  @Override public void pruneColumns(StructType required) {
    List<String> names = List.of(required.fieldNames());
    List<StructField> all = List.of(table.schema().fields());
    List<StructField> kept = all.stream().filter(one -> names.contains(one.name())).toList();
    StructField smallest = Collections.min(all, Comparator.comparing(one -> one.dataType().defaultSize()));
    columns = new StructType((kept.isEmpty() ? List.of(smallest) : kept).toArray(StructField[]::new));
  }

  /** Every task stops there; Spark stops at the whole. */
  @Override public boolean pushLimit(int limit) {
    wanted.put("_limit", Integer.toString(limit));
    rowsAtMost = Math.min(rowsAtMost, limit);
    return true;
  }

  @Override public boolean isPartiallyPushed() { return true; }

  /** {@code count(*)} of all rows is known to the servers: nothing is read. */
  @Override public boolean supportCompletePushDown(Aggregation wish) {
    boolean all = wish.groupByExpressions().length == 0 && wanted.isEmpty();
    if (!all || wish.aggregateExpressions().length != 1 || !(wish.aggregateExpressions()[0] instanceof CountStar)) {
      return false;
    }
    count = count == null ? python.ask("count", identifier, Map.of()) : count;
    return !count.isNull();
  }

  @Override public boolean pushAggregation(Aggregation wish) { return counted = supportCompletePushDown(wish); }

  @Override public Scan build() {
    if (counted) {
      InternalRow row = new GenericInternalRow(new Object[] {count.asLong()});
      return new Counted(new StructType().add("count(*)", DataTypes.LongType), new InternalRow[] {row});
    }
    int parallelism = SparkContext.getOrCreate().defaultParallelism(); // how many tasks are worth having
    PythonSide side = python.with(wanted).with(Map.of("_parallelism", Integer.toString(parallelism)));
    // A filter that only Python knows, or that Spark was told to forget, is not applied to files that Spark reads.
    boolean files = pushed.length == 0 && !new CaseInsensitiveStringMap(python.options()).containsKey("where");
    JsonNode known = wanted.isEmpty() ? table.planned() : null;
    LazyBatch batch = new LazyBatch(() -> side.batch(identifier, columns, files, filters, known));
    return new StromScan(side, batch, table, columns, wanted, rowsAtMost);
  }

  /** Planned once for a query, however often Spark comes back to it. */
  private static final class LazyBatch {
    private final Supplier<Batch> plan;
    private Batch batch;

    LazyBatch(Supplier<Batch> plan) { this.plan = plan; }

    synchronized Batch get() { return batch = batch == null ? plan.get() : batch; }
  }

  private record Counted(StructType readSchema, InternalRow[] rows) implements LocalScan {}

  private record Estimate(OptionalLong numRows, OptionalLong sizeInBytes) implements Statistics {}

  /** The Python source's scan, with a line for EXPLAIN and what Spark wants to know to plan a join. */
  private record StromScan(
      PythonSide python, LazyBatch batch, StromTable table, StructType readSchema, Map<String, String> wanted, long rowsAtMost)
      implements SupportsReportStatistics {
    @Override public String description() {
      return "strom " + table.name() + " [" + String.join(", ", readSchema.fieldNames()) + "] " + wanted;
    }

    @Override public Batch toBatch() { return batch.get(); }

    @Override public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return python.scan(readSchema).toMicroBatchStream(checkpoint);
    }

    /** Bytes of the columns read: as wide as their types, or as what is stored where that is more. */
    @Override public Statistics estimateStatistics() {
      long known = table.statistics().get("rows").asLong();
      long rows = Math.min(known, rowsAtMost);
      double stored = table.statistics().get("bytes").asDouble() / Math.max(known, 1) / table.schema().defaultSize();
      long bytes = (long) (rows * readSchema.defaultSize() * Math.max(1.0, stored));
      return new Estimate(OptionalLong.of(rows), OptionalLong.of(bytes));
    }
  }
}
