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
import java.util.function.BiConsumer;

/** Packed tiles as docs/reference/protocol.md specifies them. Their parts follow each other, and are read in order. */
final class Packed {
  private record StepHead(long step, long base, int tiles, int code) {}

  private record ColumnHead(int form, int code, int exponent, int codeOfLengths, int count) {
    boolean hasBitmap() {
      return (form & 32) != 0;
    }

    boolean isOfLists() {
      return (form & 16) != 0;
    }

    int formOfValue() {
      return form & 15;
    }
  }

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int SKETCHES = 5;
  private static final int JSON_TEXT = 6;

  private final ByteBuffer in;
  private String[] names;

  private Packed(byte[] value) {
    in = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Reads a value, and gives each tile with its step. */
  static void read(byte[] value, View view, BiConsumer<Long, View.Tile> tiles) throws IOException {
    new Packed(value).read(view, tiles);
  }

  private void read(View view, BiConsumer<Long, View.Tile> tiles) throws IOException {
    int version = in.get();
    if (version != 1) {
      throw new IllegalStateException("unknown version of packed tiles: " + version);
    }
    boolean namesAreJson = in.get() == 1;
    in.position(8); // past the number of names, which their text tells
    int bytesOfNames = in.getInt();
    long batch = in.getLong();
    List<StepHead> steps = new ArrayList<>();
    for (long step : view.steps()) {
      steps.add(new StepHead(step, in.getLong(), in.getInt(), in.get()));
    }
    steps.removeIf(step -> step.tiles == 0);
    Queue<ColumnHead> heads = new ArrayDeque<>();
    while (heads.size() < steps.size() * view.columns.size()) {
      heads.add(new ColumnHead(in.get(), in.get(), in.get(), in.get(), in.getInt()));
    }
    byte[] text = bytes(bytesOfNames);
    names = namesAreJson ? JSON.readValue(text, String[].class) : new String(text, UTF_8).split("\0", -1);
    for (StepHead step : steps) {
      long[] indexes = new long[step.tiles];
      for (int i = 0; i < step.tiles; i++) {
        indexes[i] = step.base + integer(step.code).longValue();
      }
      List<List<JsonNode>> columns = new ArrayList<>();
      for (JsonNode column : view.columns) {
        columns.add(partials(heads.remove(), step.tiles, column.get("size").intValue()));
      }
      for (int i = 0; i < step.tiles; i++) {
        int tile = i;
        List<JsonNode> partials = columns.stream().map(column -> column.get(tile)).toList();
        tiles.accept(step.step, new View.Tile(indexes[i], batch, partials));
      }
    }
    if (in.hasRemaining()) {
      throw new IllegalStateException("packed tiles have another size");
    }
  }

  /** The partials of a column, one for each tile of a step. */
  private List<JsonNode> partials(ColumnHead head, int tiles, int lgK) throws IOException {
    if (head.form == JSON_TEXT) {
      return JSON.readTree(bytes(head.count)).valueStream().toList();
    }
    BitSet present = new BitSet();
    present.set(0, tiles);
    if (head.hasBitmap()) {
      present = BitSet.valueOf(bytes((tiles + 7) / 8));
    }
    int[] lengths = new int[tiles];
    if (head.isOfLists() || head.formOfValue() == SKETCHES) {
      for (int i = 0; i < tiles; i++) {
        lengths[i] = integer(head.codeOfLengths).intValue();
      }
    }
    List<JsonNode> partials = new ArrayList<>();
    for (int i = 0; i < tiles; i++) {
      if (!present.get(i)) {
        partials.add(NullNode.instance);
      } else if (head.formOfValue() == SKETCHES) {
        partials.add(BinaryNode.valueOf(sketch(lengths[i], lgK)));
      } else if (head.isOfLists()) {
        ArrayNode list = JSON.createArrayNode();
        while (list.size() < lengths[i]) {
          list.add(value(head));
        }
        partials.add(list);
      } else {
        partials.add(value(head));
      }
    }
    return partials;
  }

  private JsonNode value(ColumnHead head) {
    return switch (head.formOfValue()) {
      case 0 -> BigIntegerNode.valueOf(integer(head.code).multiply(BigInteger.TEN.pow(head.exponent)));
      case 1 -> DoubleNode.valueOf(integer(head.code).doubleValue() / Math.pow(10, head.exponent));
      case 2 -> DoubleNode.valueOf(in.getDouble());
      case 3 -> BooleanNode.valueOf(integer(head.code).signum() != 0);
      case 4 -> TextNode.valueOf(names[integer(head.code).intValue()]);
      default -> throw new IllegalStateException("unknown form of packed tiles: " + head.form);
    };
  }

  /** The image of a sketch. Of a small one only the words are packed: the length tells what is around them. */
  private byte[] sketch(int length, int lgK) {
    if (length >= 16) {
      return bytes(4 * (length - 16));
    }
    boolean isPadded = length >= 8;
    int words = isPadded ? length - 8 : length;
    int flags = (words == 0 ? 4 : 0) + (isPadded ? 0 : 8);
    ByteBuffer image = ByteBuffer.allocate(isPadded ? 40 : 8 + 4 * words);
    image.put(new byte[] {2, 1, 7, (byte) lgK, 3, (byte) flags, (byte) words, 8});
    return image.put(bytes(4 * words)).array();
  }

  private BigInteger integer(int code) {
    byte[] bigEndian = new byte[1 << code % 4];
    for (int i = bigEndian.length - 1; i >= 0; i--) {
      bigEndian[i] = in.get();
    }
    return code < 4 ? new BigInteger(1, bigEndian) : new BigInteger(bigEndian);
  }

  private byte[] bytes(int count) {
    byte[] bytes = new byte[count];
    in.get(bytes);
    return bytes;
  }
}
