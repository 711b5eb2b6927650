"""Says of each review how likely it is a good one, by a logistic model of its words."""

import argparse
import csv
import json
import math
import re

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True)
parser.add_argument("--out", required=True)
args = parser.parse_args()

with open(args.model, encoding="utf-8") as file:
    model = json.load(file)

with open(args.data, encoding="utf-8") as data, open(args.out, "w", encoding="utf-8") as out:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", "label", "probability"])
    for row in csv.DictReader(data):
        words = re.findall(r"[a-z]+", row["text"].lower())
        score = model["bias"] + sum(model["weights"].get(word, 0.0) for word in words)
        probability = 1 / (1 + math.exp(-score))
        label = "good" if score > 0 else "bad"
        writer.writerow([row["id"], label, f"{probability:.3f}"])
