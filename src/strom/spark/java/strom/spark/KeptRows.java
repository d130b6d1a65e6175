package strom.spark;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The rows of a batch that count, moved to its beginning within the vectors of whoever read it. So the loops that Spark
 * compiles meet the vectors they know: with a class in between that knows the places of rows they are a third slower.
 */
final class KeptRows {
  private static final int STRUCT = -1, PLACE = 0;

  /** {@code places}: where these rows are, in order. The reader fills its vectors anew for the next batch. */
  static ColumnarBatch of(ColumnarBatch all, int[] places, int count) {
    int first = 0;
    while (first < count && places[first] == first) first++;
    WritableColumnVector[] vectors = new WritableColumnVector[all.numCols()];
    for (int at = 0; at < vectors.length; at++) {
      vectors[at] = (WritableColumnVector) all.column(at);
      move(vectors[at], places, first, count);
    }
    return new ColumnarBatch(vectors, count);
  }

  private static void move(WritableColumnVector all, int[] places, int first, int count) {
    if (all.isAllNull()) return;
    for (int at = first; all.hasNull() && at < count; at++) {
      if (all.isNullAt(places[at])) all.putNull(at); else all.putNotNull(at);
    }
    WritableColumnVector its = all.hasDictionary() ? all.getDictionaryIds() : all;
    switch (width(its.dataType())) {
      case 1 -> { for (int at = first; at < count; at++) its.putByte(at, its.getByte(places[at])); }
      case 2 -> { for (int at = first; at < count; at++) its.putShort(at, its.getShort(places[at])); }
      case 4 -> { for (int at = first; at < count; at++) its.putInt(at, its.getInt(places[at])); }
      case 8 -> { for (int at = first; at < count; at++) its.putLong(at, its.getLong(places[at])); }
      case -4 -> { for (int at = first; at < count; at++) its.putFloat(at, its.getFloat(places[at])); }
      case -8 -> { for (int at = first; at < count; at++) its.putDouble(at, its.getDouble(places[at])); }
      case STRUCT -> { for (int at = 0; at < its.getNumChildren(); at++) move(its.getChild(at), places, first, count); }
      default -> { for (int at = first; at < count; at++) its.putArray(at, its.getArrayOffset(places[at]), its.getArrayLength(places[at])); }
    }
  }

  /** In how many bytes a vector has a value, less than none: a float. Of a text or a list it has place and length. */
  private static int width(DataType type) {
    if (type instanceof DecimalType one) {
      return one.precision() <= Decimal.MAX_INT_DIGITS() ? 4 : one.precision() <= Decimal.MAX_LONG_DIGITS() ? 8 : PLACE;
    }
    if (type instanceof FloatType || type instanceof DoubleType) return -type.defaultSize();
    boolean whole = type instanceof IntegralType || type instanceof DatetimeType || type instanceof BooleanType;
    return whole ? type.defaultSize() : type instanceof StructType ? STRUCT : PLACE;
  }
}
