package strom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.ZoneOffset;
import java.util.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.execution.datasources.PartitioningUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table as one query sees it: what it is was asked once; reads and writes are the Python source's. */
final class StromTable
    implements SupportsRead, SupportsWrite, SupportsDeleteV2, SupportsRowLevelOperations, SupportsPartitionManagement {
  private final PythonSide python;
  private final Identifier identifier;
  private final JsonNode known;
  private JsonNode statistics;

  StromTable(PythonSide python, Identifier identifier, JsonNode known) {
    this.python = python;
    this.identifier = identifier;
    this.known = known;
  }

  @Override public String name() { return known.get("name").asText(); }

  @Override public String id() { return known.get("id").asText(); }

  @Override public StructType schema() { return (StructType) DataType.fromJson(known.get("schema").asText()); }

  /** What a query without a filter and a limit reads, where that was decided beforehand. */
  JsonNode planned() { return known.get("plan"); }

  @Override public Map<String, String> properties() { return PythonSide.map(known.get("properties")); }

  @Override public Transform[] partitioning() {
    return PythonSide.texts(known.get("partition_by")).stream().map(Expressions::identity).toArray(Transform[]::new);
  }

  @Override public Set<TableCapability> capabilities() {
    Set<TableCapability> found = EnumSet.noneOf(TableCapability.class);
    known.get("capabilities").forEach(one -> found.add(TableCapability.valueOf(one.asText())));
    return found;
  }

  @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new StromScanBuilder(this, python.with(options.asCaseSensitiveMap()), identifier);
  }

  /** Rows and bytes; asked when a plan first wants them, which most do not. */
  synchronized JsonNode statistics() {
    return statistics = statistics == null ? python.ask("statistics", identifier, Map.of()) : statistics;
  }

  @Override public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Writing(python.with(info.options().asCaseSensitiveMap()), identifier, info, false);
  }

  @Override public void deleteWhere(Predicate[] predicates) {
    python.ask("delete", identifier, Map.of("predicates", PythonSide.tree(predicates)));
  }

  @Override public StructType partitionSchema() {
    return new StructType(
        PythonSide.texts(known.get("partition_by")).stream().map(schema()::apply).toArray(StructField[]::new));
  }

  @Override public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    StructType types = partitionSchema();
    List<InternalRow> found = new ArrayList<>();
    for (JsonNode texts : python.ask("partitions", identifier, Map.of())) {
      Object[] values = new Object[types.length()];
      boolean matches = true;
      for (int at = 0; at < values.length; at++) {
        DataType type = types.apply(at).dataType();
        values[at] = PartitioningUtils.castPartValueToDesiredType(type, texts.get(at).asText(), ZoneOffset.UTC);
        int asked = Arrays.asList(names).indexOf(types.apply(at).name());
        matches &= asked < 0 || values[at].equals(wanted.get(asked, type));
      }
      if (matches) {
        found.add(new GenericInternalRow(values));
      }
    }
    return found.toArray(new InternalRow[0]);
  }

  @Override public void createPartition(InternalRow values, Map<String, String> properties) {
    python.ask("add partition", identifier, Map.of("values", told(values)));
  }

  @Override public boolean dropPartition(InternalRow values) {
    return python.ask("drop partition", identifier, Map.of("values", told(values))).asBoolean();
  }

  private List<Object> told(InternalRow values) {
    List<Object> found = new ArrayList<>();
    for (StructField one : partitionSchema().fields()) {
      found.addAll(PythonSide.tree(new LiteralValue<>(values.get(found.size(), one.dataType()), one.dataType())));
    }
    return found;
  }

  @Override public Map<String, String> loadPartitionMetadata(InternalRow values) { return Map.of(); }

  @Override public void replacePartitionMetadata(InternalRow values, Map<String, String> properties) {
    throw python.refusal(identifier, "ALTER PARTITION");
  }

  /** UPDATE and MERGE end here; DELETE only where its condition has no form that {@link #deleteWhere} takes. */
  @Override public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    Refused operation = new Refused(info.command(), this);
    if (info.command() != RowLevelOperation.Command.DELETE) {
      operation.newWriteBuilder(null);
    }
    return () -> operation;
  }

  private record Refused(Command command, StromTable table) implements RowLevelOperation {
    @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return table.newScanBuilder(options);
    }

    @Override public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      throw table.python.refusal(table.identifier, command.toString());
    }
  }

  /** A write by the Python source; a partition that is overwritten becomes an option of it. */
  private record Writing(PythonSide python, Identifier identifier, LogicalWriteInfo info, boolean overwrite)
      implements SupportsOverwriteV2, SupportsDynamicOverwrite {
    @Override public WriteBuilder truncate() { return new Writing(python, identifier, info, true); }

    @Override public WriteBuilder overwriteDynamicPartitions() {
      return new Writing(python.with(Map.of("partitionOverwriteMode", "dynamic")), identifier, info, true);
    }

    @Override public WriteBuilder overwrite(Predicate[] predicates) {
      JsonNode options = python.ask("overwrite", identifier, Map.of("predicates", PythonSide.tree(predicates)));
      return new Writing(python.with(PythonSide.map(options)), identifier, info, true);
    }

    @Override public Write build() {
      Told told = new Told(new CaseInsensitiveStringMap(python.options()), info.queryId(), info.schema());
      WriteBuilder builder = ((SupportsWrite) python.table(info.schema())).newWriteBuilder(told);
      return (overwrite ? ((SupportsTruncate) builder).truncate() : builder).build();
    }
  }

  private record Told(CaseInsensitiveStringMap options, String queryId, StructType schema)
      implements LogicalWriteInfo {}
}
