package strom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.catalog.constraints.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * {@code spark.sql.catalog.strom = strom.spark.StromCatalog}: the databases and tables of a cluster.
 *
 * <p>Every method is one question to {@link PythonSide}. Settings under {@code spark.sql.catalog.strom.} are options of
 * the data source, {@code bootstrap.servers} first of all. {@code db.t.changelog} is short for
 * {@code db.`t$changelog`}.
 */
public final class StromCatalog implements TableCatalog, SupportsNamespaces {
  private String name;
  private PythonSide python;

  @Override public void initialize(String name, CaseInsensitiveStringMap settings) {
    this.name = name;
    this.python = new PythonSide(settings.asCaseSensitiveMap());
  }

  @Override public String name() { return name; }

  @Override public String[] defaultNamespace() {
    return new String[] {python.options().getOrDefault("database", "fluss")};
  }

  // --- tables --------------------------------------------------------------------------------------------------------

  @Override public Table loadTable(Identifier table) { return load(table, Map.of()); }

  @Override public Table loadTable(Identifier table, String offsets) { return load(table, Map.of("at", offsets)); }

  @Override public Table loadTable(Identifier table, long micros) {
    return load(table, Map.of("at", Long.toString(micros / 1000)));
  }

  private Table load(Identifier table, Map<String, String> options) {
    PythonSide about = python.with(options).with(Map.of("table", path(table), "pin", "query"));
    return new StromTable(about, table, about.ask("load", table, Map.of()));
  }

  /** Rows that Python planned, of a table that it described: it need not be asked who that is. */
  public static Dataset<Row> planned(SparkSession spark, Map<String, String> options, String described) {
    Identifier name = Identifier.of(new String[0], options.get("table"));
    Table table = new StromTable(new PythonSide(options), name, PythonSide.json(described));
    CaseInsensitiveStringMap none = CaseInsensitiveStringMap.empty();
    return Dataset.ofRows(
        spark, DataSourceV2Relation.create(table, Option.empty(), Option.empty(), none, Option.empty()));
  }

  @Override public Identifier[] listTables(String[] namespace) {
    JsonNode found = python.ask("tables", in(namespace), Map.of("namespace", namespace));
    return PythonSide.texts(found).stream().map(one -> Identifier.of(namespace, one)).toArray(Identifier[]::new);
  }

  /** PRIMARY KEY, where this Spark knows it. */
  @Override public Set<TableCatalogCapability> capabilities() {
    Set<TableCatalogCapability> all = EnumSet.allOf(TableCatalogCapability.class);
    all.removeIf(one -> !one.name().equals("SUPPORT_TABLE_CONSTRAINT"));
    return all;
  }

  @Override public Table createTable(Identifier table, TableInfo info) {
    List<Object> constraints = new ArrayList<>();
    for (Constraint one : info.constraints()) {
      constraints.add(one instanceof PrimaryKey key ? PythonSide.tree(key.columns()) : one.toDDL());
    }
    return create(table, info.columns(), info.partitions(), info.properties(), constraints);
  }

  /** Before Spark 4.1, which has constraints. */
  @Override public Table createTable(Identifier table, Column[] columns, Transform[] layout, Map<String, String> told) {
    return create(table, columns, layout, told, List.of());
  }

  private Table create(
      Identifier table, Column[] columns, Transform[] layout, Map<String, String> properties, List<Object> limits) {
    Map<String, Object> arguments = new HashMap<>(Map.of("table", path(table), "properties", properties));
    arguments.put("schema", CatalogV2Util.v2ColumnsToStructType(columns).json());
    arguments.put("layout", PythonSide.tree(layout));
    arguments.put("constraints", limits);
    python.ask("create", table, arguments);
    return loadTable(table);
  }

  @Override public Table alterTable(Identifier table, TableChange... changes) {
    List<Object> told = new ArrayList<>();
    for (TableChange one : changes) {
      if (one instanceof TableChange.SetProperty set) {
        told.add(Map.of("set", set.property(), "value", set.value()));
      } else if (one instanceof TableChange.RemoveProperty unset) {
        told.add(Map.of("unset", unset.property()));
      } else if (one instanceof TableChange.AddColumn add && add.fieldNames().length == 1 && add.position() == null) {
        StructType column = new StructType().add(add.fieldNames()[0], add.dataType(), add.isNullable());
        String comment = Objects.toString(add.comment(), "");
        told.add(Map.of("add", column.json(), "comment", comment, "default", add.defaultValue() != null));
      } else {
        told.add(Map.of("other", one.getClass().getSimpleName()));
      }
    }
    python.ask("alter", table, Map.of("table", path(table), "changes", told));
    return loadTable(table);
  }

  @Override public boolean dropTable(Identifier table) {
    return python.ask("drop", table, Map.of("table", path(table))).asBoolean();
  }

  @Override public void renameTable(Identifier table, Identifier to) {
    throw python.with(Map.of("table", path(table))).refusal(table, "RENAME");
  }

  // --- databases -----------------------------------------------------------------------------------------------------

  @Override public String[][] listNamespaces() {
    JsonNode found = python.ask("databases", null, Map.of());
    return PythonSide.texts(found).stream().map(one -> new String[] {one}).toArray(String[][]::new);
  }

  @Override public String[][] listNamespaces(String[] namespace) {
    return namespace.length == 0 ? listNamespaces() : new String[0][];
  }

  @Override public Map<String, String> loadNamespaceMetadata(String[] namespace) {
    return PythonSide.map(python.ask("database", in(namespace), Map.of("namespace", namespace)));
  }

  @Override public void createNamespace(String[] namespace, Map<String, String> properties) {
    python.ask("create database", in(namespace), Map.of("namespace", namespace, "properties", properties));
  }

  @Override public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw python.refusal(in(namespace), "ALTER DATABASE");
  }

  @Override public boolean dropNamespace(String[] namespace, boolean cascade) {
    return python.ask("drop database", in(namespace), Map.of("namespace", namespace, "cascade", cascade)).asBoolean();
  }

  private static String path(Identifier table) {
    String database = String.join(".", table.namespace());
    String separator = table.namespace().length == 2 ? "$" : ".";
    return database.isEmpty() ? table.name() : database + separator + table.name();
  }

  private static Identifier in(String[] namespace) { return Identifier.of(namespace, ""); }
}
