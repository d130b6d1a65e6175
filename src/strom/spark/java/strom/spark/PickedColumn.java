package strom.spark;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.*;
import org.apache.spark.unsafe.types.UTF8String;

/** Some values of a column, by their places; all of them where these are null. */
final class PickedColumn extends ColumnVector {
  private final ColumnVector inner;
  private final int[] places;

  PickedColumn(ColumnVector inner, int[] places) {
    super(inner.dataType());
    this.inner = inner;
    this.places = places;
  }

  private int at(int row) { return places == null ? row : places[row]; }

  @Override public void close() { inner.close(); }
  @Override public void closeIfFreeable() { inner.closeIfFreeable(); }
  @Override public boolean hasNull() { return inner.hasNull(); }
  @Override public int numNulls() { return inner.numNulls(); }
  @Override public boolean isNullAt(int row) { return inner.isNullAt(at(row)); }
  @Override public boolean getBoolean(int row) { return inner.getBoolean(at(row)); }
  @Override public byte getByte(int row) { return inner.getByte(at(row)); }
  @Override public short getShort(int row) { return inner.getShort(at(row)); }
  @Override public int getInt(int row) { return inner.getInt(at(row)); }
  @Override public long getLong(int row) { return inner.getLong(at(row)); }
  @Override public float getFloat(int row) { return inner.getFloat(at(row)); }
  @Override public double getDouble(int row) { return inner.getDouble(at(row)); }
  @Override public ColumnarArray getArray(int row) { return inner.getArray(at(row)); }
  @Override public ColumnarMap getMap(int row) { return inner.getMap(at(row)); }
  @Override public Decimal getDecimal(int row, int precision, int scale) { return inner.getDecimal(at(row), precision, scale); }
  @Override public UTF8String getUTF8String(int row) { return inner.getUTF8String(at(row)); }
  @Override public byte[] getBinary(int row) { return inner.getBinary(at(row)); }
  @Override public ColumnVector getChild(int place) { return new PickedColumn(inner.getChild(place), places); }
}
