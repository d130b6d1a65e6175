package strom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.spark.sql.catalyst.analysis.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.execution.datasources.v2.python.*;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The Python data source, which knows Strom; the Java side only asks it.
 *
 * <p>A question is one planning call: a source is made with the options {@code _op}, {@code _args} and
 * {@code _request}, and its schema has one field whose metadata holds the answer as JSON. What went wrong is thrown as
 * Spark's own exception where there is one, else with one sentence.
 */
record PythonSide(Map<String, String> options) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The same source with the options of one query or one write over its own. */
  PythonSide with(Map<String, String> more) {
    Map<String, String> all = new HashMap<>(options);
    all.putAll(more);
    return new PythonSide(all);
  }

  /** The source as a table of these columns, which are all that is read or written. */
  Table table(StructType columns) {
    return source().getTable(columns, new Transform[0], options);
  }

  /**
   * What the tasks of a query read, as it was planned already, or by one question: by itself Spark would have the source
   * made first, and plan then. Where this Spark has not the doors for it, it does.
   */
  Batch batch(Identifier about, StructType columns, boolean files, Filter[] filters, JsonNode planned) {
    try {
      Map<String, ?> asked = Map.of("columns", columns.json(), "files", files);
      JsonNode answer = planned == null ? ask("plan", about, asked) : planned;
      List<byte[]> all = texts(answer.get("tasks")).stream().map(Base64.getDecoder()::decode).toList();
      scala.collection.immutable.Seq<byte[]> tasks = CollectionConverters.asScala(all.subList(2, all.size())).toSeq();
      PythonDataSourceV2 source = source();
      source.setReadInfo(new PythonDataSourceReadInfo(reading(all.get(0), columns, all.get(1)), tasks));
      Batch hot = new PythonBatch(source, "strom", columns, new CaseInsensitiveStringMap(options));
      Batch both = LakeFiles.Both.of(hot, columns, answer.get("files"), answer.get("schema").asText(), filters);
      return both == null ? batch(about, columns, false, filters, null) : both;
    } catch (LinkageError another) {
      return scan(columns).toBatch();
    }
  }

  /** How tasks are read: Python pickled it but for one text, the columns. */
  private static byte[] reading(byte[] before, StructType columns, byte[] after) {
    byte[] text = columns.json().getBytes(StandardCharsets.UTF_8);
    ByteBuffer all = ByteBuffer.allocate(before.length + 5 + text.length + after.length).order(ByteOrder.LITTLE_ENDIAN);
    return all.put(before).put((byte) 'X').putInt(text.length).put(text).put(after).array();
  }

  /** The source's own scan of these columns. */
  Scan scan(StructType columns) {
    return ((SupportsRead) table(columns)).newScanBuilder(new CaseInsensitiveStringMap(options)).build();
  }

  JsonNode ask(String operation, Identifier about, Map<String, ?> arguments) {
    String request = UUID.randomUUID().toString();
    try {
      String text = JSON.writeValueAsString(arguments);
      PythonSide side = with(Map.of("_op", operation, "_args", text, "_request", request));
      StructType schema = source().inferSchema(new CaseInsensitiveStringMap(side.options));
      JsonNode answer = json(schema.fields()[0].metadata().getString("answer"));
      if (!request.equals(answer.path("request").asText())) {
        throw new IllegalStateException("strom: '" + operation + "' " + request + " got another one's answer");
      }
      if (answer.has("error")) {
        throw PythonSide.<RuntimeException>unchecked(failure(answer.get("error"), about));
      }
      return answer.get("answer");
    } catch (JsonProcessingException error) {
      throw new IllegalStateException("strom: '" + operation + "' " + request + ": " + error.getMessage(), error);
    }
  }

  static JsonNode json(String text) {
    try {
      return JSON.readTree(text);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException("strom: no JSON: " + error.getMessage(), error);
    }
  }

  /** What to throw where SQL has a word that Strom does not follow: Python knows what to do instead. */
  RuntimeException refusal(Identifier about, String command) {
    return new UnsupportedOperationException(ask("refuse", about, Map.of("command", command)).asText());
  }

  private static PythonDataSourceV2 source() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("strom");
    return source;
  }

  private static Throwable failure(JsonNode error, Identifier about) {
    String message = error.path("message").asText();
    return switch (error.path("kind").asText()) {
      case "TableNotFound" -> new NoSuchTableException(about);
      case "TableExists" -> new TableAlreadyExistsException(about);
      case "DatabaseNotFound" -> new NoSuchNamespaceException(about.namespace());
      case "DatabaseExists" -> new NamespaceAlreadyExistsException(about.namespace());
      case "DatabaseNotEmpty" -> new NonEmptyNamespaceException(about.namespace());
      case "InvalidAlter" -> new UnsupportedOperationException(message); // Spark hides the other kind in a stack
      default -> new IllegalArgumentException(message);
    };
  }

  /** Spark's exceptions are checked, and not all methods that must throw them declare it. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> T unchecked(Throwable error) throws T {
    throw (T) error;
  }

  static List<String> texts(JsonNode list) {
    List<String> found = new ArrayList<>();
    list.forEach(one -> found.add(one.asText()));
    return found;
  }

  static Map<String, String> map(JsonNode object) {
    Map<String, String> found = new HashMap<>();
    object.properties().forEach(one -> found.put(one.getKey(), one.getValue().asText()));
    return found;
  }

  /** Expressions for Python: {@code {column}}, {@code {value, type}}, {@code {call, args}}, or {@code {other}}. */
  static List<Object> tree(Expression... expressions) {
    List<Object> found = new ArrayList<>();
    for (Expression one : expressions) {
      Map<String, Object> node = new HashMap<>();
      if (one instanceof NamedReference reference) {
        node.put("column", reference.fieldNames());
      } else if (one instanceof Literal<?> literal) {
        boolean bytes = literal.value() instanceof byte[];
        String text = Objects.toString(literal.value(), null);
        node.put("value", bytes ? HexFormat.of().formatHex((byte[]) literal.value()) : text);
        node.put("type", literal.dataType().json());
      } else if (one instanceof GeneralScalarExpression call) {
        node.put("call", call.name());
        node.put("args", tree(call.children()));
      } else if (one instanceof Transform transform) {
        node.put("call", transform.name());
        node.put("args", tree(transform.arguments()));
      } else {
        node.put("other", one.toString());
      }
      found.add(node);
    }
    return found;
  }
}
