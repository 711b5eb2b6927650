"""Train a tiny random model by GRPO, with rewards that an HTTP service gives."""

from __future__ import annotations

import argparse
import json
import string
import urllib.request

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

SPECIAL = ("<pad>", "<eos>")
PROMPTS = ("count: 1 2 3", "the year is", "pi is 3.", "call me at")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each printable character."""
    characters = (*SPECIAL, *dict.fromkeys(string.printable))
    model = models.WordLevel({char: number for number, char in enumerate(characters)}, "?")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1]
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a Llama of 20,000 random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reward_url", required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--output", default="out/grpo")
    args = parser.parse_args()

    def http_reward(completions: list[str], **_: object) -> list[float]:
        body = json.dumps({"completions": completions}).encode()
        request = urllib.request.Request(args.reward_url, body)  # noqa: S310 - of the job file
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            rewards: list[float] = json.load(answer)["rewards"]
        print("rewards", json.dumps(rewards), flush=True)
        return rewards

    tokenizer = make_tokenizer()
    trainer = GRPOTrainer(
        model=make_model(tokenizer),
        processing_class=tokenizer,
        reward_funcs=http_reward,
        train_dataset=Dataset.from_dict({"prompt": list(PROMPTS)}),
        args=GRPOConfig(
            output_dir=args.output,
            max_steps=args.steps,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
