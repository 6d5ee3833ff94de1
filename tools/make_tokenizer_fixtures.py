#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/*.json: small tokenizers and the ids and decodings that the `tokenizers` library gives.

    python3 tools/make_tokenizer_fixtures.py          (needs: pip install tokenizers)

A file holds {"tokenizer": tokenizer.json, "variants": [{"name", "override": top-level keys to replace, "cases": [[text,
ids, ids with special tokens, decoded, decoded without special tokens] ...]} ...]}.
"""
import json
import pathlib

from check_tokenizer import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SPECIAL = ["<|begin|>", "<|end|>", "<unk>"]

LINES = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox runs on into the woods.",
    "It wasn't what they'd expected: she'll say we've done it, I'm sure, and you're late. DON'T SHOUT, IT'S LATE!",
    "In 1984 there were 12345678 reasons, 3.14159 of them rational; 50% off, $1,299.00 or €7 for 2 x 3 = 6.",
    "def quantize(weights, bits=4):\n    if bits not in (2, 3, 4):\n\t\traise ValueError(f\"bits: {bits!r}\")\n    return [w // 2 for w in weights]",
    "for (size_t i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // dot product\r\n\r\n\treturn sum;\r\n",
    "中文分词器的测试：今天天气很好，我们去公园散步吧。日本語のテキスト、カタカナとひらがな。한국어 문장도 있습니다.",
    "مرحبا بالعالم، هذا نص باللغة العربية ١٢٣. שלום עולם. नमस्ते दुनिया, यह हिन्दी है। สวัสดีชาวโลก",
    "Zażółć gęślą jaźń. Œuvre naïve, Straße, İstanbul, Ångström, ﬁne, x² + y² = ½, Ⅷ, ①②③, …—–",
    "👩‍👩‍👧‍👦 family, 👍🏽 thumbs, 🇩🇪🇫🇷 flags, 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🤷🏿‍♀️ ☺️",
    "e\u0301 a\u0323\u0302 n\u0303 \u1e9b\u0323 \u0344 q\u0307\u0323 \u1100\u1161\u11a8 \uac01",
    "\u200bzero\u200dwidth\ufeff \u00a0nbsp\u3000wide \u2028line\u2029para\u0085next\u180evowel",
    "\ufffd \ue000 \U000f1234 \U0010ffff \x01\x02\x1b[0m \x7f",
    "   leading, trailing   ", "\t\ttabs\tand  spaces   \n\n\n  newlines \n \n", " ", "", "a", "\n", "  ", "\r\n", "▁", "▁▁ under ▁score",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "<|begin|>user says <|end|>hello<|end|> <unk><|begin|", "x<|end|>y <|end|> z<|endless|>", "<0x41><0xE4><0x0A>", "ſ 'ſ 'S",
    "\U00031350\U0001e4d0\u0cf3 new code points \U0001e4f0 7\U00011f50", "Ġspelled Ċ bytes âĢ",
]
TRAINING = LINES[:9] + [
    "There is the theory that the other three things were there then. The weather in the north was better than in the south.",
    "return the value of the function, and raise an error if the arguments are not valid; see the documentation for details",
    "the water, the fire, the earth and the air were here before there was anyone to name them, said the teacher to the others",
] * 3


def with_parts(model, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def byte_level_trainer(size=600):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                               show_progress=False)


def bos(pattern="<|begin|> $A"):
    return processors.TemplateProcessing(single=pattern, special_tokens=[("<|begin|>", 0), ("<|end|>", 1)])


def split_then_spell(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def smollm_like():
    return train(with_parts(models.BPE(), decoder=decoders.ByteLevel(), pre_tokenizer=pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])), byte_level_trainer())


def qwen_like():
    tokenizer = train(with_parts(models.BPE(), normalizer=normalizers.NFC(), decoder=decoders.ByteLevel(),
                                 pre_tokenizer=split_then_spell(QWEN), post_processor=processors.ByteLevel()),
                      byte_level_trainer())
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool> x", normalized=False)])
    return tokenizer


def llama3_like():
    tokenizer = train(with_parts(models.BPE(ignore_merges=True), decoder=decoders.ByteLevel(),
                                 pre_tokenizer=split_then_spell(LLAMA3)), byte_level_trainer())
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos()])
    data = json.loads(tokenizer.to_str())
    # Words of the vocabulary that no merge reaches: only ignore_merges finds them.
    for word in ["Ġunreachable", "Ġzoo", "123", "quick"]:
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    return Tokenizer.from_str(json.dumps(data))


def with_byte_tokens(tokenizer):
    """Puts the 256 byte tokens behind the special ones and turns byte_fallback on."""
    data = json.loads(tokenizer.to_str())
    names = [f"<0x{b:02X}>" for b in range(256)]
    if data["model"]["type"] == "Unigram":
        data["model"]["vocab"] += [[name, -20.0] for name in names]
    else:
        old = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
        data["model"]["vocab"] = {token: i for i, token in enumerate(old[:3] + names + old[3:])}
    data["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(data))


def plain_trainer(size, **options):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, limit_alphabet=70, show_progress=False, **options)


def gemma_like():
    tokenizer = train(with_parts(models.BPE(unk_token="<unk>", fuse_unk=True), normalizer=normalizers.Replace(" ", "▁"),
                                 pre_tokenizer=pre_tokenizers.Split("▁", "merged_with_next")), plain_trainer(500))
    tokenizer = with_byte_tokens(tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = bos()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ["\n\n", "\n\n\n", "▁▁", "  ", "<b>"]])
    return tokenizer


def llama2_like():
    tokenizer = train(with_parts(models.BPE(unk_token="<unk>", fuse_unk=True),
                                 normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                                 pre_tokenizer=pre_tokenizers.Split("▁", "merged_with_next")), plain_trainer(500))
    tokenizer = with_byte_tokens(tokenizer)
    tokenizer.pre_tokenizer = None
    tokenizer.post_processor = bos("<|begin|> $A <|end|>")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def unigram_like():
    return train(with_parts(models.Unigram(), normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                            pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace(),
                            post_processor=bos("$A <|end|>")),
                 trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))


def unigram_bytes():
    tokenizer = with_byte_tokens(unigram_like())
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return tokenizer


def suffix_like():
    return train(with_parts(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), decoder=decoders.BPEDecoder(),
                            normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                                             normalizers.Strip()]),
                            pre_tokenizer=pre_tokenizers.Whitespace(),
                            post_processor=processors.RobertaProcessing(("<|end|>", 1), ("<|begin|>", 0))),
                 plain_trainer(300, end_of_word_suffix="</w>"))


def prefix_like():
    return train(with_parts(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True),
                            normalizer=normalizers.NFKD(), pre_tokenizer=pre_tokenizers.Sequence(
                                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits()])),
                 plain_trainer(300, continuing_subword_prefix="##"))


def cases(tokenizer, texts):
    result = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text, add_special_tokens=True).ids
        result.append([text, ids, special, tokenizer.decode(special, skip_special_tokens=False),
                       tokenizer.decode(special, skip_special_tokens=True)])
    return result


def write(name, tokenizer, variants=(), texts=None):
    data = json.loads(tokenizer.to_str())
    texts = texts or LINES + list(random_texts(60, len(name), SPECIAL))
    result = []
    for label, override in [("as it is", {}), *variants]:
        result.append({"name": label, "override": override,
                       "cases": cases(Tokenizer.from_str(json.dumps(data | override)), texts)})
    path = pathlib.Path(__file__).resolve().parent.parent / f"tests/fixtures/tokenizer/{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"tokenizer": data, "variants": result}, separators=(",", ":")) + "\n")
    print(f"{path.name}: {len(data['model']['vocab'])} tokens, {len(result)} variants of {len(texts)} texts, "
          f"{path.stat().st_size} bytes")


def added(id_, content, **flags):
    return {"id": id_, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False} | flags


def component_variants(n_vocab):
    """Every component on a model whose tokens cross all borders, so that ids show where the text was cut."""
    split = {"type": "Split", "pattern": {"Regex": "[aeiou ]"}, "behavior": "Isolated", "invert": False}
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            yield f"{behavior} {invert}", {"pre_tokenizer": split | {"behavior": behavior, "invert": invert}}
        yield f"Punctuation {behavior}", {"pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
    patterns = [r"\w+", r"[\w']+|\s", r"\s+$", "^.", r"\S{,3}", r"[a-z]{2,3}+", r"(?m:e.)", r"\h{2}", r"\d+(?=\D)", r"(?<=t)h", "x*",
                r"[^\S\n]+", r"\p{Lu}\p{Ll}*", r"[[:alpha:]]+", "[[:alnum:][:space:]]+", "[[:lower:]]+|[[:digit:]]", "[[:upper:]][[:word:]]*", "\\u0065", r"(?i)THE", r"\W", r"t++h|(?>e+)"]
    for pattern in patterns:
        yield f"regex {pattern}", {"pre_tokenizer": split | {"pattern": {"Regex": pattern}}}
        yield f"replace {pattern}", {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": "th"}}
    yield "string", {"pre_tokenizer": split | {"pattern": {"String": "th"}}}
    for scheme in ["always", "first", "never"]:
        for cut in [False, True]:
            metaspace = {"type": "Metaspace", "replacement": "e", "prepend_scheme": scheme, "split": cut}
            yield f"metaspace {scheme} {cut}", {"pre_tokenizer": metaspace, "decoder": metaspace, "added_tokens": [
                added(0, "<|begin|>", special=True), added(1, "<|end|>", special=True)]}
            yield f"strip, metaspace {scheme} {cut}", {
                "pre_tokenizer": metaspace, "normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}
    yield "byte level prefix", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    yield "byte level normalizer", {"normalizer": {"type": "ByteLevel"}}
    yield "sequence", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Whitespace"}, {"type": "Digits", "individual_digits": False}, split]}}
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield form, {"normalizer": {"type": form}}
    flags = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    for flag in flags:
        yield f"added {flag}", {"added_tokens": [added(n_vocab, "the", **{flag: True}), added(n_vocab + 1, "then", **{flag: True}),
                                                 added(n_vocab + 2, " and", **{flag: True}), added(n_vocab + 3, "th")],
                                "normalizer": {"type": "Lowercase"}}
    yield "added spaces", {"added_tokens": [added(n_vocab, "fox", lstrip=True, rstrip=True), added(n_vocab + 1, " "),
                                            added(n_vocab + 2, "é", normalized=True)], "normalizer": {"type": "NFD"}}
    yield "decoders", {"decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "-"}, {"type": "Strip", "content": "t", "start": 1, "stop": 0},
        {"type": "Fuse"}]}}
    yield "bert", {"post_processor": {"type": "BertProcessing", "sep": ["<|end|>", 1], "cls": ["<|begin|>", 0]}}


def components():
    tokenizer = train(with_parts(models.BPE(unk_token="<unk>")), plain_trainer(400, max_token_length=6))
    n_vocab = tokenizer.get_vocab_size()
    texts = [LINES[i] for i in (0, 1, 2, 3, 4, 7, 9, 12, 13, 14, 15)] + [
        "the then", " Thethen And the fox  fox", "the<|end|> the", "<|begin|> x", "\u0301the\u0301 éé", "th the,then andand", "aé①x😀😀b"]
    write("components", tokenizer, component_variants(n_vocab), texts)


def main():
    for make in [smollm_like, qwen_like, llama3_like, gemma_like, llama2_like, unigram_like, unigram_bytes, suffix_like, prefix_like]:
        write(make.__name__, make())
    components()


if __name__ == "__main__":
    main()
