"""Answers questions of the form `a + b`, and says which of the given answers are right."""

import argparse
import json

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--out", required=True)
args = parser.parse_args()

with open(args.data, encoding="utf-8") as data, open(args.out, "w", encoding="utf-8") as out:
    for line in data:
        row = json.loads(line)
        left, right = map(int, row["question"].split("+"))
        out.write(json.dumps({**row, "is_right": row["answer"] == left + right}) + "\n")
