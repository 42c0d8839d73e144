"""Parses logs and spans with the message types of OpenTelemetry, and compares them with the events."""

import base64
import json
import pathlib
import sys

from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData


def read_lines(path):
    """Returns the lines of a file. Texts may hold other characters that Python takes for line ends."""
    return [line for line in path.read_text().split("\n") if line]


def parse(path, message_type):
    """Returns the messages in the lines of a file."""
    return [json_format.Parse(line, message_type()) for line in read_lines(path)]


def to_hex(field):
    """Undoes the Base64 that protobuf assumes: OTLP has ids in hexadecimal."""
    return base64.b64encode(field).decode()


def check_ids(record):
    """Checks the lengths of the ids of a record."""
    for field, length in ((record.trace_id, 32), (record.span_id, 16)):
        assert len(to_hex(field)) in (0, length), to_hex(field)


def check_keys(attributes):
    """Checks that no key occurs twice."""
    keys = [attribute.key for attribute in attributes]
    assert len(keys) == len(set(keys)), keys


def main():
    work, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    events = [json.loads(line) for line in read_lines(work / f"{name}.jsonl")]

    records = []
    for message in parse(work / f"{name}.otlp.jsonl", LogsData):
        for resource in message.resource_logs:
            check_keys(resource.resource.attributes)
            for scope in resource.scope_logs:
                records.extend(scope.log_records)
    for record in records:
        check_ids(record)
        check_keys(record.attributes)
        assert record.time_unix_nano and record.severity_number, record
    losses = [record for record in records if record.event_name == "etw.losses"]
    # `weir dump` also prints the events that describe the file.
    assert len(records) - len(losses) <= len(events), (len(records), len(events))

    spans = []
    for message in parse(work / f"{name}.otlp-spans.jsonl", TracesData):
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                spans.extend(scope.spans)
    ids = {to_hex(span.span_id) for span in spans}
    assert len(ids) == len(spans), "a span id occurs twice"
    for span in spans:
        check_ids(span)
        check_keys(span.attributes)
        assert len(to_hex(span.span_id)) == 16 and span.name, span
        assert span.start_time_unix_nano <= span.end_time_unix_nano, span
    print(f"{name}: {len(records)} log records and {len(spans)} spans")


main()
