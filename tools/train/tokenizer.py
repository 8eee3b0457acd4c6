"""Trains the demo tokenizer and writes the tokenizer files of a checkpoint folder.

Byte-level BPE in the form of the real tokenizer.json: NFC, the family's split
pattern, 256 byte letters first, merges, then the 33 added tokens by name.
Use: tokenizer.py TEXT... OUTDIR
"""
import json
import sys
from tokenizers import Tokenizer, Regex, models, normalizers, pre_tokenizers, decoders, trainers, AddedToken

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call>
</tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response>
</tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod>
<tts_text_bos_single> <|audio_pad|>""".split()
PLAIN = ADDED[14:26]          # <tool_call> ... </think>: special false
VOCAB = 8192                  # rows in the checkpoint, the last ones without a token
BASE = VOCAB - 33 - 23        # letters and merges


def pieces():
    tk = Tokenizer(models.BPE())
    tk.normalizer = normalizers.NFC()
    tk.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tk.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return tk


def train(texts):
    tk = pieces()
    tr = trainers.BpeTrainer(vocab_size=BASE, min_frequency=2, show_progress=False,
                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tk.train_from_iterator(texts, tr)
    raw = json.loads(tk.to_str())
    # the 256 byte letters first, in the order of the real vocabulary (printable ones, then the moved ones)
    vocab = raw["model"]["vocab"]
    letters = [chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256))]
    letters += [chr(0x100 + i) for i in range(256 - len(letters))]
    rest = [t for t, _ in sorted(vocab.items(), key=lambda kv: kv[1]) if t not in set(letters)]
    return {t: i for i, t in enumerate(letters + rest)}, raw["model"]["merges"]


def document(vocab, merges):
    n = len(vocab)
    bl = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [{"id": n + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": t not in PLAIN} for i, t in enumerate(ADDED)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, bl]},
            "post_processor": bl, "decoder": bl,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": [list(m) if not isinstance(m, str) else m.split(" ") for m in merges]}}


def write(texts, out):
    vocab, merges = train(texts)
    doc = document(vocab, merges)
    json.dump(doc, open(f"{out}/tokenizer.json", "w"), ensure_ascii=False, indent=2)
    ids = {t: len(vocab) + i for i, t in enumerate(ADDED)}
    cfg = {"add_bos_token": False, "add_prefix_space": False,
           "added_tokens_decoder": {str(ids[t]): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                                  "single_word": False, "special": t not in PLAIN} for t in ADDED},
           "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
           "model_max_length": 65536, "pad_token": "<|endoftext|>", "split_special_tokens": False,
           "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    json.dump(cfg, open(f"{out}/tokenizer_config.json", "w"), indent=4)
    tk = Tokenizer.from_file(f"{out}/tokenizer.json")
    for t in ("Hello, world!", "I'm 1234\n\n x", "<think>a</think>", "中文 è\u0301"):
        assert tk.decode(tk.encode(t, add_special_tokens=False).ids, skip_special_tokens=False) == \
            __import__("unicodedata").normalize("NFC", t), t
    return tk


if __name__ == "__main__":
    def lines():
        for f in sys.argv[1:-1]:
            for piece in open(f, encoding="utf-8").read().split("<|endoftext|>"):
                yield piece
    print(write(lines(), sys.argv[-1]).get_vocab_size(), "tokens")
