import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.*;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;

/**
 * What a manifest says, and what it makes of a row. It never changes: keep it as long as readers follow its build.
 * Times are microseconds since 1970 in UTC. Partials are JSON, also those that were packed.
 */
final class View {
  /** Of each column of the view the partial of one interval. */
  record Tile(long index, long batch, List<JsonNode> partials) {}

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonNode MISSING = NullNode.instance;
  private static final BigInteger TOO_LARGE = BigInteger.TEN.pow(28).multiply(BigInteger.valueOf(5));

  final String build;
  final boolean isTable;
  final JsonNode columns;
  private final JsonNode features;
  final NavigableMap<Long, Long> slots = new TreeMap<>(); // how many each step has

  View(JsonNode manifest) {
    int layout = manifest.get("layout").intValue();
    if (layout != 2 && layout != 3) {
      throw new IllegalStateException("unknown layout " + layout);
    }
    JsonNode definition = manifest.get("definition");
    build = manifest.get("build").textValue();
    isTable = manifest.get("kind").textValue().equals("latest");
    columns = definition.get("columns");
    features = definition.path("features");
    NavigableMap<Long, Long> windows = new TreeMap<>(); // the longest of each step
    for (JsonNode feature : features) {
      if (feature.path("window").isNumber()) {
        windows.merge(feature.get("step").longValue(), feature.get("window").longValue(), Math::max);
      }
    }
    for (long step : windows.keySet()) {
      long longest = Collections.max(windows.headMap(step, true).values());
      long reach = longest + windows.firstKey() + definition.get("future").longValue();
      slots.put(step, (reach + step - 1) / step + 2);
    }
  }

  /** Reads a row at t. If the view has newer events, t is a moment of the past. */
  Reader.Answer answer(Map<String, byte[]> row, long batch, long newest, long t) throws IOException {
    return isTable ? newestRow(row.get("row"), batch) : features(tiles(row, t, t <= newest), batch, t, t <= newest);
  }

  private Reader.Answer newestRow(byte[] field, long batch) throws IOException {
    JsonNode row = field == null ? JSON.createArrayNode() : JSON.readTree(field); // index, batch, values
    ObjectNode values = JSON.createObjectNode();
    for (int i = 0; i < columns.size(); i++) {
      JsonNode column = columns.get(i); // name, field, kind, whether it is a list, default
      JsonNode value = row.hasNonNull(i + 2) ? row.get(i + 2) : column.get(4);
      values.set(column.get(0).textValue(), column.get(2).textValue().equals("float") ? asFloat(value) : value);
    }
    return new Reader.Answer(build, Math.max(batch, row.path(1).asLong(-1)), row.size() > 2, values);
  }

  /** A float, or a list of floats, of which some may be written without a point. */
  private static JsonNode asFloat(JsonNode value) {
    if (value.isArray()) {
      return JSON.valueToTree(value.valueStream().map(View::asFloat).toList());
    }
    return value.isNull() ? value : DoubleNode.valueOf(value.doubleValue());
  }

  private Reader.Answer features(Map<String, Tile> tiles, long batch, long t, boolean past) throws IOException {
    ObjectNode values = JSON.createObjectNode();
    List<String> hidden = new ArrayList<>();
    List<Tile> allTaken = new ArrayList<>();
    for (JsonNode feature : features) {
      String name = feature.get("name").textValue();
      JsonNode value;
      if (feature.has("derived")) {
        value = derived(feature.get("derived"), values);
      } else {
        boolean isLifetime = feature.get("window").isNull();
        List<Tile> taken = isLifetime ? lifetime(feature, tiles, t, past) : window(feature, tiles, t, past);
        allTaken.addAll(taken);
        value = aggregated(feature.get("columns"), taken);
      }
      values.set(name, value.isNull() ? feature.get("default") : value);
      if (name.startsWith(".")) {
        hidden.add(name);
      }
    }
    long ofLife = tiles.containsKey("life") ? tiles.get("life").batch : -1; // also if its time to live is over
    long newestBatch = allTaken.stream().mapToLong(Tile::batch).reduce(Math.max(batch, ofLife), Math::max);
    return new Reader.Answer(build, newestBatch, !allTaken.isEmpty(), values.remove(hidden));
  }

  /** The tiles of a row by field. Of a slot that is also packed the higher index counts, of one index the field. */
  private Map<String, Tile> tiles(Map<String, byte[]> row, long t, boolean past) throws IOException {
    Map<String, Tile> tiles = new HashMap<>();
    if (row.containsKey("packed")) {
      Packed packed = new Packed(row.get("packed"), this);
      if (past && t < packed.wholeSince) {
        throw new IllegalStateException("moment-not-kept");
      }
      tiles.putAll(packed.tiles);
    }
    for (String field : row.keySet()) {
      if (!field.startsWith("packed")) {
        List<JsonNode> parts = JSON.readTree(row.get(field)).valueStream().toList();
        Tile loose = new Tile(parts.get(0).longValue(), parts.get(1).longValue(), parts.subList(2, parts.size()));
        tiles.merge(field, loose, (other, same) -> other.index > loose.index ? other : loose);
      }
    }
    return tiles;
  }

  String slot(long step, long index) {
    return step / 1_000_000 + ":" + index % slots.get(step);
  }

  private List<Tile> lifetime(JsonNode feature, Map<String, Tile> tiles, long t, boolean past) {
    if (past) {
      throw new IllegalStateException("moment-not-kept");
    }
    Tile life = tiles.get("life");
    boolean expired = life != null && feature.get("ttl").isNumber() && life.index < t - feature.get("ttl").longValue();
    return life == null || expired ? List.of() : List.of(life);
  }

  /** The tiles of a window, newest first. Where a coarser tile fits, it stands for many. */
  private List<Tile> window(JsonNode feature, Map<String, Tile> tiles, long t, boolean past) {
    if (past && t % slots.firstKey() != 0) {
      throw new IllegalStateException("moment-not-kept");
    }
    LinkedList<Tile> taken = new LinkedList<>();
    long own = feature.get("step").longValue();
    long begin = Math.floorDiv(t - feature.get("window").longValue(), own) * own;
    while (begin < t) {
      long step = coarsest(begin, past ? slots.firstKey() : own, past ? t : Long.MAX_VALUE);
      long index = begin / step;
      Tile tile = tiles.get(slot(step, index));
      if (tile != null && tile.index == index) {
        taken.addFirst(tile);
      } else if (tile != null && tile.index > index && past) {
        throw new IllegalStateException("moment-not-kept");
      }
      begin += step;
    }
    return taken;
  }

  /** The coarsest step, not below `finest`, of which a tile starts at `begin` and does not reach beyond `end`. */
  private long coarsest(long begin, long finest, long end) {
    for (long step : slots.tailMap(finest, true).descendingKeySet()) {
      if (begin % step == 0 && step <= end - begin) {
        return step;
      }
    }
    throw new IllegalStateException("no tile starts at " + begin);
  }

  /** The value of one column or, of a sum and a count, the mean. */
  private JsonNode aggregated(JsonNode numbers, List<Tile> tiles) throws IOException {
    JsonNode value = merged(numbers.get(0).intValue(), tiles);
    return numbers.size() == 1 ? value : calculated("/", value, merged(numbers.get(1).intValue(), tiles));
  }

  private JsonNode merged(int number, List<Tile> tiles) throws IOException {
    JsonNode column = columns.get(number);
    int size = column.get("size").intValue();
    Comparator<JsonNode> bySize = Comparator.comparing(JsonNode::decimalValue);
    List<JsonNode> partials = tiles.stream().map(tile -> tile.partials.get(number)).filter(p -> !p.isNull()).toList();
    return switch (column.get("aggregate").textValue()) {
      case "count" -> LongNode.valueOf(partials.stream().mapToLong(JsonNode::longValue).sum());
      case "sum" -> partials.isEmpty() ? MISSING : sum(partials, column);
      case "min" -> partials.stream().min(bySize).map(View::withoutSignOfZero).orElse(MISSING);
      case "max" -> partials.stream().max(bySize).map(View::withoutSignOfZero).orElse(MISSING);
      case "last" -> partials.isEmpty() ? MISSING : partials.get(0);
      case "last_n" -> JSON.valueToTree(partials.stream().flatMap(JsonNode::valueStream).limit(size).toList());
      case "distinct" -> LongNode.valueOf(estimate(partials, size));
      default -> throw new IllegalStateException("unknown aggregate " + column.get("aggregate"));
    };
  }

  private static JsonNode sum(List<JsonNode> partials, JsonNode column) {
    BigInteger sum = partials.stream().map(JsonNode::bigIntegerValue).reduce(BigInteger.ZERO, BigInteger::add);
    if (column.get("kind").textValue().equals("int")) {
      return integer(sum);
    }
    double value = new BigDecimal(sum, column.get("scale").intValue()).doubleValue();
    return sum.abs().compareTo(TOO_LARGE) < 0 ? DoubleNode.valueOf(value) : MISSING;
  }

  private static JsonNode integer(BigInteger value) {
    return value.bitLength() < Long.SIZE ? LongNode.valueOf(value.longValue()) : MISSING;
  }

  private static JsonNode withoutSignOfZero(JsonNode number) {
    return number.isIntegralNumber() ? number : DoubleNode.valueOf(number.doubleValue() + 0.0); // -0.0 + 0.0 is 0.0
  }

  private static long estimate(List<JsonNode> sketches, int lgK) throws IOException {
    Union union = new Union(lgK);
    for (JsonNode sketch : sketches) {
      union.update(HllSketch.heapify(sketch.binaryValue()));
    }
    union.update(union.getResult(TgtHllType.HLL_8)); // so that the estimate depends on the values alone
    return (long) Math.floor(union.getEstimate() + 0.5);
  }

  private static JsonNode derived(JsonNode tree, JsonNode values) {
    return switch (tree.get(0).textValue()) {
      case "value" -> values.get(tree.get(1).textValue());
      case "constant" -> tree.get(1);
      default -> calculated(tree.get(0).textValue(), derived(tree.get(1), values), derived(tree.get(2), values));
    };
  }

  private static JsonNode calculated(String op, JsonNode left, JsonNode right) {
    if (left.isNull() || right.isNull()) {
      return MISSING;
    }
    if (left.isIntegralNumber() && right.isIntegralNumber() && !op.equals("/")) {
      BigInteger a = left.bigIntegerValue();
      BigInteger b = right.bigIntegerValue();
      return integer(op.equals("+") ? a.add(b) : op.equals("-") ? a.subtract(b) : a.multiply(b));
    }
    double a = left.doubleValue();
    double b = right.doubleValue();
    double result = switch (op) {
      case "+" -> a + b;
      case "-" -> a - b;
      case "*" -> a * b;
      default -> a / b; // not finite if b is 0
    };
    return Double.isFinite(result) ? DoubleNode.valueOf(result) : MISSING;
  }
}
