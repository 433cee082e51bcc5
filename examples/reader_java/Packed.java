import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BigIntegerNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.*;

/**
 * Packed tiles as docs/reference/protocol.md specifies them. Their parts follow each other and are read in that order.
 * The last part, the answers of windows, is left unread: it only saves a reader the merging of tiles.
 */
final class Packed {
  private record StepHead(long step, long base, int tiles, int code) {}

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int[] CODES_OF_LENGTHS = {0, 1, 2, 9};
  private static final int HALF_BYTES = 9; // the code of numbers of which two are in a byte
  private static final int OTHER_IMAGE = 512; // from this length on a sketch is an image, not coupons

  /** The tiles by field, as they would be without packing. */
  final Map<String, View.Tile> tiles = new HashMap<>();
  /** The tiles are not enough for a moment before this one. */
  final long wholeSince;

  private final ByteBuffer in;
  private final String[] names;
  private int tileCount;

  Packed(byte[] value, View view) throws IOException {
    in = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
    int version = in.get();
    int formOfNames = in.get();
    in.getShort(); // nothing yet
    int size = in.getInt();
    int bytesOfNames = in.getInt();
    int bytesOfAnswers = in.getInt();
    long batch = in.getLong();
    wholeSince = in.getLong();
    if (version != 1 || size != value.length) {
      throw new IllegalStateException("packed tiles of version " + version + " and " + size + " bytes");
    }
    List<StepHead> steps = new ArrayList<>();
    for (long step : view.slots.keySet()) {
      steps.add(new StepHead(step, in.getLong(), in.getInt(), in.get()));
    }
    byte[] heads = bytes(2 * view.columns.size());
    byte[] text = bytes(bytesOfNames);
    names = formOfNames == 2 ? JSON.readValue(text, String[].class) : new String(text, UTF_8).split("\0", -1);
    List<List<Long>> indexes = new ArrayList<>();
    for (StepHead step : steps) {
      indexes.add(integers(step.code, step.tiles).stream().map(offset -> step.base + offset.longValue()).toList());
      tileCount += step.tiles;
    }
    List<List<JsonNode>> columns = new ArrayList<>();
    for (int i = 0; i < view.columns.size(); i++) {
      int lgK = view.columns.get(i).get("size").intValue();
      columns.add(column(heads[2 * i] & 0xFF, heads[2 * i + 1] & 0xFF, lgK, columns));
    }
    int number = 0;
    for (int i = 0; i < steps.size(); i++) {
      for (long index : indexes.get(i)) {
        int tile = number++;
        List<JsonNode> partials = columns.stream().map(column -> column.get(tile)).toList();
        tiles.put(view.slot(steps.get(i).step, index), new View.Tile(index, batch, partials));
      }
    }
    if (in.remaining() != bytesOfAnswers) {
      throw new IllegalStateException("packed tiles have other parts");
    }
  }

  /** The partials of a column, one for each tile, by the two bytes of its head and the columns before it. */
  private List<JsonNode> column(int first, int second, int lgK, List<List<JsonNode>> before) throws IOException {
    int form = first & 7;
    if (form == 7) {
      return before.get(second);
    }
    if (form == 6) {
      return JSON.readTree(bytes(in.getInt())).valueStream().toList();
    }
    BitSet present = new BitSet();
    present.set(0, tileCount);
    if ((first & 16) != 0) {
      present = BitSet.valueOf(bytes((tileCount + 7) / 8));
    }
    boolean areLists = (first & 8) != 0;
    boolean areSketches = form == 5;
    int count = present.cardinality();
    Iterator<Integer> lengths = Collections.emptyIterator();
    if (areLists || areSketches) {
      int code = CODES_OF_LENGTHS[first >> 5 & 3];
      List<Integer> some = integers(code, count).stream().map(BigInteger::intValue).toList();
      count = some.stream().mapToInt(Integer::intValue).sum();
      lengths = some.iterator();
    }
    Iterator<JsonNode> values = areSketches ? null : values(form, second & 15, second >> 4, count).iterator();
    List<JsonNode> partials = new ArrayList<>();
    for (int tile = 0; tile < tileCount; tile++) {
      if (!present.get(tile)) {
        partials.add(NullNode.instance);
      } else if (areSketches) {
        partials.add(BinaryNode.valueOf(sketch(lengths.next(), lgK)));
      } else if (areLists) {
        ArrayNode list = JSON.createArrayNode();
        for (int left = lengths.next(); left > 0; left--) {
          list.add(values.next());
        }
        partials.add(list);
      } else {
        partials.add(values.next());
      }
    }
    return partials;
  }

  private List<JsonNode> values(int form, int code, int exponent, int count) {
    List<JsonNode> values = new ArrayList<>();
    if (form == 2) {
      while (values.size() < count) {
        values.add(DoubleNode.valueOf(in.getDouble()));
      }
    } else {
      for (BigInteger number : integers(code, count)) {
        values.add(switch (form) {
          case 0 -> BigIntegerNode.valueOf(number.multiply(BigInteger.TEN.pow(exponent)));
          case 1 -> DoubleNode.valueOf(number.doubleValue() / Math.pow(10, exponent));
          case 3 -> BooleanNode.valueOf(number.signum() != 0);
          default -> TextNode.valueOf(names[number.intValue()]); // 4
        });
      }
    }
    return values;
  }

  /** The image of a sketch, of which the words follow. */
  private byte[] sketch(int length, int lgK) {
    if (length >= OTHER_IMAGE) {
      return bytes(4 * (length - OTHER_IMAGE));
    }
    ByteBuffer image = ByteBuffer.allocate(12 + 4 * length).order(ByteOrder.LITTLE_ENDIAN);
    if (length < 8) {
      image.put(new byte[] {2, 1, 7, (byte) lgK, 3, 8, (byte) length, 8});
    } else {
      int lgSlots = 5;
      while (4 * length > 3 << lgSlots) {
        lgSlots++;
      }
      image.put(new byte[] {3, 1, 7, (byte) lgK, (byte) lgSlots, 8, 0, 9}).putInt(length);
    }
    image.put(bytes(4 * length));
    return Arrays.copyOf(image.array(), image.position());
  }

  private List<BigInteger> integers(int code, int count) {
    List<BigInteger> integers = new ArrayList<>();
    while (integers.size() < count) {
      if (code == HALF_BYTES) {
        int pair = in.get() & 0xFF;
        integers.add(BigInteger.valueOf(pair >> 4));
        integers.add(BigInteger.valueOf(pair & 15));
      } else {
        byte[] bigEndian = new byte[1 << code % 4];
        for (int i = bigEndian.length - 1; i >= 0; i--) {
          bigEndian[i] = in.get();
        }
        integers.add(code < 4 ? new BigInteger(1, bigEndian) : new BigInteger(bigEndian));
      }
    }
    return integers.subList(0, count);
  }

  private byte[] bytes(int count) {
    byte[] bytes = new byte[count];
    in.get(bytes);
    return bytes;
  }
}
