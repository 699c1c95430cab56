import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A Java producer and a Java member of each of two groups; `java_clients.py` starts it and reads what it prints, a line
 * for each thing that has happened:
 *
 *   A topic partition number offset    a record was acknowledged
 *   F topic partition number reason    its fate is unknown
 *   R group topic partition number     a member has read a record
 *   H group generation topic:partition,...    what a member holds
 *   X what                             a client has failed
 *
 * Writing ends with the first line of standard input, and the members at its end.
 */
public class FaultClients {
    static final int PARTITIONS = 3;
    static final int LOOKS = 3;
    static volatile boolean isWriting = true;
    static volatile boolean isReading = true;

    public static void main(String[] words) throws Exception {
        String bootstrap = words[0];
        List<String> written = List.of(words[1].split(","));
        List<String> read = List.of(words[2].split(","));
        String requestMs = words[3];
        long everyMs = Long.parseLong(words[4]);
        List<Thread> writers = List.of(start(() -> write(bootstrap, written, requestMs, everyMs)));
        List<Thread> readers = new ArrayList<>();
        for (int at = 5; at < words.length; at++) {
            String[] group = words[at].split(":");
            readers.add(start(() -> read(bootstrap, group[0], group[1], read, requestMs)));
        }
        System.in.read();
        isWriting = false;
        for (Thread writer : writers) writer.join();
        say("W");
        while (System.in.read() != -1) { }
        isReading = false;
        for (Thread reader : readers) reader.join();
    }

    static Thread start(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable failure) {
                say("X " + failure);
            }
        });
        thread.start();
        return thread;
    }

    static void say(String line) {
        System.out.println(line);
    }

    static Properties settings(String bootstrap, String requestMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("socket.connection.setup.timeout.ms", "1000");
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("request.timeout.ms", requestMs);
        settings.put("metadata.max.age.ms", String.valueOf(Integer.parseInt(requestMs) / LOOKS));
        return settings;
    }

    static void write(String bootstrap, List<String> topics, String requestMs, long everyMs) {
        Properties settings = settings(bootstrap, requestMs);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "5");
        settings.put("delivery.timeout.ms", "120000");
        settings.put("max.block.ms", "120000");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long due = System.currentTimeMillis();
            for (long number = 0; isWriting; number++) {
                for (String topic : topics)
                    for (int partition = 0; partition < PARTITIONS; partition++)
                        send(producer, topic, partition, number);
                due += everyMs;
                Thread.sleep(Math.max(0, due - System.currentTimeMillis()));
            }
        } catch (InterruptedException impossible) {
            throw new KafkaException(impossible);
        }
    }

    static void send(KafkaProducer<String, String> producer, String topic, int partition, long number) {
        String value = number + " " + "x".repeat(80);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (place, error) -> {
            String what = " " + topic + " " + partition + " " + number + " ";
            say(error == null ? "A" + what + place.offset() : "F" + what + error.toString().replace('\n', ' '));
        });
    }

    static void read(String bootstrap, String group, String protocol, List<String> topics, String requestMs) {
        Properties settings = settings(bootstrap, requestMs);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "1000");
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(topics);
            long commitAt = System.currentTimeMillis();
            while (isReading) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100)))
                    say("R " + group + " " + record.topic() + " " + record.partition() + " " + record.value().split(" ")[0]);
                hold(consumer, group);
                if (System.currentTimeMillis() - commitAt >= 500) {
                    consumer.commitAsync();
                    commitAt = System.currentTimeMillis();
                }
            }
        }
    }

    static void hold(KafkaConsumer<String, String> consumer, String group) {
        int generation = consumer.groupMetadata().generationId();
        String held = consumer.assignment().stream().map(at -> at.topic() + ":" + at.partition()).collect(Collectors.joining(","));
        if (generation == consumer.groupMetadata().generationId())
            say("H " + group + " " + generation + " " + held);
    }
}
