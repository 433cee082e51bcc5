import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.util.*;
import java.util.concurrent.Callable;

/**
 * Reads the features of one entity from Leftfold's online store, as docs/reference/protocol.md specifies it. It has one
 * connection: give each thread its own, and make another one after an IOException.
 */
public final class Reader implements AutoCloseable {
  /** What a read gives. A missing value is a JSON null, a datetime is microseconds. */
  public record Answer(String build, long batch, boolean found, ObjectNode values) {}

  private static final JsonMapper JSON = JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
  private static final long DAY = 86_400_000_000L;

  private final Socket redis;
  private final DataInputStream received;
  private final String prefix;
  private final Map<String, View> views = new HashMap<>(); // by name, each of the build that readers followed last

  public Reader(String host, int port, String namespace) throws IOException {
    redis = new Socket(host, port);
    received = new DataInputStream(new BufferedInputStream(redis.getInputStream()));
    prefix = "lf:" + namespace + ":";
  }

  @Override
  public void close() throws IOException {
    redis.close();
  }

  /** Reads an entity as it is now or, if `at` is not null, as it was at that moment of the past day. */
  public Answer read(String name, String entity, Long at) throws IOException {
    while (true) {
      View view = views.get(name);
      String build = name + ":" + (view == null ? "" : view.build);
      List<?> replies = call(
          List.of("HGETALL", prefix + "row:" + build + ":" + entity),
          List.of("HMGET", prefix + "mark:" + build, "batch", "newest"),
          List.of("GET", prefix + "active:" + name));
      if (replies.get(2) == null) {
        throw new IllegalStateException("readers follow no build of " + name);
      }
      String active = name + ":" + text(replies.get(2));
      if (active.equals(build)) {
        return answer(view, (List<?>) replies.get(0), (List<?>) replies.get(1), at);
      }
      Object manifest = call(List.of("GET", prefix + "build:" + active)).get(0); // and begin again
      views.put(name, new View(JSON.readTree((byte[]) manifest)));
    }
  }

  private static Answer answer(View view, List<?> fields, List<?> mark, Long at) throws IOException {
    Map<String, byte[]> row = new HashMap<>();
    for (Iterator<?> names = fields.iterator(); names.hasNext(); ) {
      row.put(text(names.next()), (byte[]) names.next());
    }
    long batch = mark.get(0) == null ? -1 : Long.parseLong(text(mark.get(0)));
    long newest = mark.get(1) == null ? 0 : Long.parseLong(text(mark.get(1)));
    long now = System.currentTimeMillis() * 1_000;
    if (at != null && at < now && (view.isTable || at < now - DAY)) {
      throw new IllegalStateException("moment-not-kept");
    }
    return view.answer(row, batch, newest, at != null ? at : Math.max(now, newest + 1));
  }

  private static String text(Object reply) {
    return new String((byte[]) reply, UTF_8);
  }

  /** Sends commands in one round trip. Your service's client of Redis can replace this method and the next. */
  @SafeVarargs
  private List<Object> call(List<String>... commands) throws IOException {
    StringBuilder sent = new StringBuilder();
    for (List<String> command : commands) {
      sent.append("*" + command.size() + "\r\n");
      for (String word : command) {
        sent.append("$" + word.getBytes(UTF_8).length + "\r\n" + word + "\r\n");
      }
    }
    redis.getOutputStream().write(sent.toString().getBytes(UTF_8));
    return replies(commands.length);
  }

  @SuppressWarnings("deprecation") // DataInputStream.readLine is for ASCII, as these lines are
  private List<Object> replies(int count) throws IOException {
    List<Object> replies = new ArrayList<>();
    while (replies.size() < count) {
      String line = received.readLine(); // $SIZE before bytes, *SIZE before replies, -ERROR
      if (line == null || line.startsWith("-")) {
        throw new IOException("Redis replied " + line);
      }
      int size = Integer.parseInt(line.substring(1));
      if (line.startsWith("*")) {
        replies.add(replies(size));
      } else if (size < 0) {
        replies.add(null);
      } else {
        replies.add(received.readNBytes(size));
        received.skipNBytes(2); // the end of the line
      }
    }
    return replies;
  }

  /**
   * Prints a JSON document for each entity of HOST PORT NAMESPACE VIEW AT ENTITY…, AT being a time or `now`. With one
   * argument, conformance.json, it prints one for each row in that file.
   */
  public static void main(String[] arguments) throws Exception {
    if (arguments.length > 1) {
      Long at = arguments[4].equals("now") ? null : Long.valueOf(arguments[4]);
      try (Reader reader = new Reader(arguments[0], Integer.parseInt(arguments[1]), arguments[2])) {
        for (String entity : List.of(arguments).subList(5, arguments.length)) {
          print(() -> reader.read(arguments[3], entity, at));
        }
      }
      return;
    }
    JsonNode document = JSON.readTree(new File(arguments[0]));
    for (JsonNode conformance : document.get("cases")) {
      View view = new View(document.get("views").get(conformance.get("view").textValue()));
      for (String held : List.of("held", "held_packed")) {
        if (conformance.has(held)) {
          Map<String, byte[]> row = new HashMap<>();
          conformance.get(held).properties().forEach(field -> row.put(field.getKey(), bytes(field)));
          print(() -> view.answer(row, -1, conformance.get("newest").longValue(), conformance.get("at").longValue()));
        }
      }
    }
  }

  private static byte[] bytes(Map.Entry<String, JsonNode> field) {
    String text = field.getValue().textValue();
    return field.getKey().equals("packed") ? HexFormat.of().parseHex(text) : text.getBytes(UTF_8);
  }

  private static void print(Callable<Answer> read) throws Exception {
    Object printed;
    try {
      printed = read.call();
    } catch (IllegalStateException refused) {
      printed = Map.of("refused", refused.getMessage());
    }
    System.out.println(JSON.writeValueAsString(printed));
  }
}
