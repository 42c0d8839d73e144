"""Compares tables that this project wrote with the output of weir dump, in four readers.

Part 1: for every trace, the tables of the layouts `events` and `by-type` have the events, times and
fields that `weir dump --format jsonl` prints.
Part 2: ten questions about a dataset of three hosts have the same answers in DuckDB, Spark and
DataFusion, and these are the answers that follow from the output of weir dump and from the numbers
with which tables.sh generated the traces.
"""

import ctypes
import datetime
import glob
import json
import os
import subprocess
import sys
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

ROOT, WORK = sys.argv[1:3]
WEIR, WEIR_SQL = (os.environ[name] for name in ("WEIR", "WEIR_SQL"))
# Nanoseconds from 1601, where the times of Windows begin, to 1970.
EPOCH_NS = 11_644_473_600 * 10**9


def run(*command):
    """Runs a program; exit status 3 and 4 of weir mean damage and losses, which the traces have."""
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode not in (0, 3, 4):
        sys.exit(f"{' '.join(command)}: {result.returncode}: {result.stderr.decode()}")
    return result.stdout


def convert(trace, folder, *options):
    run(WEIR, "convert", trace, "--to", "parquet", "-o", folder, *options)


def nanoseconds(text):
    """Parses a time with seven digits after the point."""
    seconds, fraction = text.rstrip("Z").split(".")
    moment = datetime.datetime.fromisoformat(seconds).replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp()) * 10**9 + int(fraction) * 100


def tables(folder):
    return sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))


def read(folder):
    data = ds.dataset(folder, format="parquet", partitioning="hive")
    return data.to_table()


def dump(trace):
    return [json.loads(line) for line in run(WEIR, "dump", "--format", "jsonl", trace).splitlines()]


def key_of_line(line):
    return json.dumps(
        [nanoseconds(line["time"]), line["guid"], line["event"], line["id"], line["opcode"], line["level"],
         line["cpu"], line.get("activity"), line["fields"], line.get("message")], sort_keys=True)


def key_of_row(row):
    fields = json.loads(row["payload"] or "{}")
    return json.dumps(
        [row["time"], row["provider_id"], row["event"], row["id"], row["opcode"], row["level"], row["cpu"],
         row["activity"], fields, row["message"]], sort_keys=True)


def time_as_number(table):
    for name, kind in zip(table.schema.names, table.schema.types):
        if pa.types.is_timestamp(kind):
            index = table.schema.get_field_index(name)
            table = table.set_column(index, name, table[name].cast(pa.int64()))
    return table


def same_value(wanted, found):
    """Whether a value of a typed column is that of the JSON output."""
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same_value, wanted, found))
    if isinstance(wanted, (dict, list)):
        return json.loads(found) == wanted
    if isinstance(found, bytes):
        return found.hex() == wanted
    if isinstance(found, bool):
        return wanted == found
    if isinstance(wanted, str) and isinstance(found, int):
        if wanted.startswith("0x"):
            return int(wanted, 16) == found
        return wanted == str(found) or nanoseconds(wanted) == found
    if isinstance(wanted, str) and found is None:
        return wanted[:4].isdigit() and not 1678 <= int(wanted[:4]) <= 2261
    if isinstance(wanted, float) or isinstance(found, float):
        if isinstance(wanted, str):
            return wanted.lower().replace("infinity", "inf") == str(found).lower()
        # The JSON of a 32-bit number has only the digits that 32 bits need.
        return wanted == found or ctypes.c_float(wanted).value == found
    return str(wanted) == str(found) if isinstance(found, str) else wanted == found


def column_of(field, columns):
    """The column of a field: the name with other characters as underscores, made unique."""
    name = "".join(c if c.isalnum() else "_" for c in field[:60]) or "field"
    name = "_" + name if name[0].isdigit() else name
    return name if name in columns and name not in HEAD else name + "_2"


HEAD = ["time", "process_id", "process", "thread_id", "cpu", "level", "keywords", "activity",
        "related_activity", "stack", "undecoded", "raw", "date", "host", "provider"]


def check_trace(trace, number):
    lines = dump(trace)
    folder = os.path.join(WORK, f"events-{number}")
    convert(trace, folder)
    table = time_as_number(read(os.path.join(folder, "events")))
    rows = table.to_pylist()
    assert len(rows) == len(lines), f"{trace}: {len(rows)} rows of {len(lines)} events"
    wanted, found = Counter(map(key_of_line, lines)), Counter(map(key_of_row, rows))
    assert wanted == found, f"{trace}: {list((wanted - found))[:1]} and {list((found - wanted))[:1]}"
    # DuckDB reads the same times and counts.
    pattern = os.path.join(folder, "events", "**", "*.parquet")
    [(count, first, last)] = duckdb.execute(
        f"SELECT count(*), min(epoch_ns(time)), max(epoch_ns(time)) FROM read_parquet('{pattern}')"
    ).fetchall()
    times = [nanoseconds(line["time"]) for line in lines]
    assert (count, first, last) == (len(lines), min(times), max(times)), trace

    folder = os.path.join(WORK, f"types-{number}")
    convert(trace, folder, "--layout", "by-type")
    by_time = {}
    for line in lines:
        by_time.setdefault((nanoseconds(line["time"]), line["cpu"], line["level"]), []).append(line)
    total = fields = 0
    for name in tables(folder):
        if name == "losses":
            continue
        table = time_as_number(read(os.path.join(folder, name)))
        total += table.num_rows
        if name in ("undecoded", "other"):
            continue
        for row in table.to_pylist():
            candidates = by_time[(row["time"], row["cpu"], row["level"])]
            matching = [line for line in candidates
                        if all(column_of(key, row) in row and same_value(value, row[column_of(key, row)])
                               for key, value in line["fields"].items())]
            assert matching, f"{trace}: {name}: no event for {row}"
            fields += len(matching[0]["fields"])
    assert total == len(lines), f"{trace}: {total} rows by type of {len(lines)} events"
    print(f"{os.path.basename(trace)}: {len(lines)} events, {fields} fields, {len(tables(folder)) - 1} tables")


QUESTIONS = [
    "SELECT count(*) AS n FROM events",
    "SELECT host, count(*) AS n FROM events GROUP BY host ORDER BY host",
    "SELECT host, coalesce(event, '') AS name, count(*) AS n FROM events GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT count(DISTINCT thread_id) AS n FROM events",
    "SELECT host, sum(payload_bytes) AS n FROM events GROUP BY host ORDER BY host",
    "SELECT level, count(*) AS n FROM events GROUP BY level ORDER BY level",
    "SELECT cpu, host, count(*) AS n FROM events WHERE host <> 'host-1' GROUP BY cpu, host ORDER BY cpu, host",
    "SELECT date, min(payload) AS first_payload, max(payload) AS last_payload FROM events GROUP BY date ORDER BY date",
    "SELECT e.host, e.n, l.lost FROM (SELECT host, count(*) AS n FROM events GROUP BY host) e "
    "JOIN (SELECT host, sum(count) AS lost FROM losses WHERE kind = 'events lost' GROUP BY host) l "
    "ON e.host = l.host ORDER BY e.host",
    "SELECT provider_id, event, max(payload_bytes) AS n FROM events WHERE payload LIKE '%1%' "
    "AND event IS NOT NULL GROUP BY provider_id, event HAVING count(*) > 10 ORDER BY provider_id, event",
]


def check_generated(host, lines):
    """Checks that the output of weir dump has each event that was generated, and else only events
    of the file's header."""
    with open(os.path.join(WORK, f"written-{host}", "expected.jsonl"), encoding="utf-8") as file:
        generated = [json.loads(line) for line in file]
    assert len(generated) == host * 1000
    wanted = Counter(event["filetime"] * 100 - EPOCH_NS for event in generated)
    found = Counter(nanoseconds(line["time"]) for line in lines)
    assert not wanted - found, f"host {host}: {list((wanted - found))[:1]} is missing"
    assert len(lines) - len(generated) < 10, f"host {host}: {len(lines)} events"


def known_answers(lines_by_host, lost_by_host):
    """The answers, computed from the output of weir dump and the numbers of lost events."""
    all_lines = [(host, line) for host, lines in sorted(lines_by_host.items()) for line in lines]

    def grouped(key, value=lambda values: len(values), rows=all_lines):
        groups = {}
        for host, line in rows:
            groups.setdefault(key(host, line), []).append(line)
        return [[*group, value(lines)] for group, lines in sorted(groups.items())]

    thread = lambda line: line.get("attributed", line)["tid"]
    payload = lambda line: json.dumps(line["fields"], ensure_ascii=False, separators=(",", ":"))
    decoded = [(host, line) for host, line in all_lines if not line.get("undecoded")]
    first_and_last = lambda lines: (min(map(payload, lines)), max(map(payload, lines)))
    by_date = grouped(lambda host, line: (line["time"][:10],), first_and_last, rows=decoded)
    with_digit = [(host, line) for host, line in decoded if line["event"] is not None and "1" in payload(line)]
    longest = grouped(lambda host, line: (line["guid"], line["event"]),
                      lambda lines: (len(lines), max(line["len"] for line in lines)), rows=with_digit)
    return [
        [[len(all_lines)]],
        grouped(lambda host, line: (host,)),
        grouped(lambda host, line: (host, line["event"] or "")),
        [[len({thread(line) for _, line in all_lines} - {-1})]],
        grouped(lambda host, line: (host,), lambda lines: sum(line["len"] for line in lines)),
        grouped(lambda host, line: (line["level"],)),
        grouped(lambda host, line: (line["cpu"], host), rows=[r for r in all_lines if r[0] != "host-1"]),
        [[date, *payloads] for date, payloads in by_date],
        [[host, len(lines), lost_by_host[host]] for host, lines in sorted(lines_by_host.items())],
        [[guid, event, size] for guid, event, (count, size) in longest if count > 10],
    ]


def plain(value):
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, float) or type(value).__name__ == "Decimal":
        return int(value)
    return value


def check_questions():
    folder = os.path.join(WORK, "hosts")
    lines, lost = {}, {}
    for number in (1, 2, 3):
        trace = os.path.join(WORK, f"written-{number}", "plain.etl")
        host = f"host-{number}"
        convert(trace, folder, "--host", host)
        lines[host], lost[host] = dump(trace), number * 7 - 7
        check_generated(number, lines[host])
    known = known_answers(lines, lost)
    assert len(known) == len(QUESTIONS)

    pattern = lambda name: os.path.join(folder, name, "**", "*.parquet")
    duck = duckdb.connect()
    duck.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{pattern('events')}', hive_partitioning = true)")
    duck.execute(f"CREATE VIEW losses AS SELECT * FROM read_parquet('{pattern('losses')}')")

    spark = None
    if not os.environ.get("TABLES_WITHOUT_SPARK"):
        from pyspark.sql import SparkSession

        spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
                 .config("spark.sql.shuffle.partitions", "1")
                 .config("spark.sql.legacy.parquet.nanosAsLong", "true")
                 .config("spark.sql.session.timeZone", "UTC").getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        for name in ("events", "losses"):
            spark.read.parquet(os.path.join(folder, name)).createOrReplaceTempView(name)

    for number, question in enumerate(QUESTIONS):
        answers = {"DuckDB": [[plain(value) for value in row] for row in duck.execute(question).fetchall()]}
        names = [column[0] for column in duck.description]
        printed = run(WEIR_SQL, folder, question, "--format", "jsonl").splitlines()
        answers["DataFusion"] = [[json.loads(line).get(name) for name in names] for line in printed]
        if spark is not None:
            answers["Spark"] = [[plain(value) for value in row] for row in spark.sql(question).collect()]
        assert known[number], f"no answer: {question}"
        for engine, answer in answers.items():
            assert answer == known[number], f"{question}\n{engine}: {answer[:5]}\nknown: {known[number][:5]}"
        print(f"question {number + 1}: {len(known[number])} rows, equal in {', '.join(answers)}")


def main():
    traces = sorted(glob.glob(os.path.join(ROOT, "fixtures", "etl", "*.etl")))
    samples = os.environ.get("TRACEWEIR_SAMPLES")
    if samples:
        traces += sorted(glob.glob(os.path.join(samples, "*.etl")) + glob.glob(os.path.join(samples, "*.etl.zip")))
    for number, trace in enumerate(traces):
        check_trace(trace, number)
    check_questions()


main()
