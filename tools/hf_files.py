"""The JSON files of a Hugging Face model directory, made from the metadata of a GGUF file."""
from gguf_model import ModelError

# How llama.cpp marks tokens.
CONTROL, USER_DEFINED = 3, 4
SPACE = "\u2581"  # how SentencePiece vocabularies spell a space


def _short(value):
    """1e-06 for the float32 nearest to it, which is what GGUF holds."""
    return float(f"{value:.6g}")


def make_config(model, dtype):
    get, hidden, heads = model.get, model.get("embedding_length"), model.get("attention.head_count")
    config = {
        "attention_bias": False, "attention_dropout": 0.0, "hidden_size": hidden, "initializer_range": 0.02,
        "intermediate_size": get("feed_forward_length"), "max_position_embeddings": get("context_length"),
        "num_attention_heads": heads, "num_hidden_layers": get("block_count"),
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "rms_norm_eps": _short(get("attention.layer_norm_rms_epsilon")), "rope_scaling": None,
        "rope_theta": _short(get("rope.freq_base", 10000.0)),
        "tie_word_embeddings": not model.has_tensor("output.weight"),
        "torch_dtype": dtype, "use_cache": True, "vocab_size": len(model.tokenizer("tokens")),
        "bos_token_id": model.tokenizer("bos_token_id"), "eos_token_id": model.tokenizer("eos_token_id"),
        "pad_token_id": model.tokenizer("padding_token_id"),
    }
    config |= {"llama": _llama_config, "qwen2": _qwen2_config, "gemma3": _gemma3_config}[model.architecture](model)
    if model.architecture == "qwen2":  # its published config has none of these
        for key in ("attention_bias", "rope_scaling", "pad_token_id"):
            del config[key]
    return dict(sorted(config.items()))


def _llama_config(model):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "mlp_bias": False,
            "head_dim": model.get("embedding_length") // model.get("attention.head_count"), "pretraining_tp": 1,
            "transformers_version": "4.42.3"}


def _qwen2_config(model):
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
            "max_window_layers": model.get("block_count"), "sliding_window": model.get("context_length"),
            "use_sliding_window": False, "transformers_version": "4.44.0"}


def _gemma3_config(model):
    pattern = 6  # every sixth layer sees everything
    layers = range(1, model.get("block_count") + 1)
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh", "head_dim": model.get("attention.key_length"),
            "query_pre_attn_scalar": model.get("attention.key_length"), "attn_logit_softcapping": None,
            "final_logit_softcapping": None, "rope_local_base_freq": 10000.0,
            "sliding_window": model.get("attention.sliding_window"), "_sliding_window_pattern": pattern,
            "layer_types": ["sliding_attention" if i % pattern else "full_attention" for i in layers],
            "use_bidirectional_attention": False, "transformers_version": "4.55.0.dev0"}


def make_generation_config(config):
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if config.get(key) is not None}
    return {"_from_model_config": True, "transformers_version": config["transformers_version"]} | ids


# ------------------------------------------------------------------------------------------------ tokenizer.json

_QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def _byte_level(add_prefix_space, trim_offsets, use_regex):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets,
            "use_regex": use_regex}


def _bpe(vocab, merges, **options):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            } | options | {"vocab": vocab, "merges": merges}


def _vocabulary(tokens):
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ModelError("the vocabulary lists a token twice")
    return vocab


def _byte_level_tokenizer(model):
    tokens, types, kind = model.tokenizer("tokens"), model.tokenizer("token_type"), model.tokenizer("pre")
    # A special token is spelled in characters that the byte level can spell; other control tokens are fillers.
    spelled = {chr(c) for r in ((33, 127), (161, 173), (174, 256), (256, 324)) for c in range(*r)}
    added = [i for i, token in enumerate(tokens) if types[i] in (CONTROL, USER_DEFINED) and set(token) <= spelled]
    parts = {"model": _bpe(_vocabulary(tokens), model.tokenizer("merges"), continuing_subword_prefix="",
                           end_of_word_suffix="")}
    if kind == "smollm":
        digits = {"type": "Digits", "individual_digits": True}
        parts |= {"normalizer": None, "post_processor": None, "decoder": _byte_level(True, True, True),
                  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, _byte_level(False, True, True)]}}
    elif kind == "qwen2":
        split = {"type": "Split", "pattern": {"Regex": _QWEN2_PATTERN}, "behavior": "Isolated", "invert": False}
        plain = _byte_level(False, False, False)
        parts |= {"normalizer": {"type": "NFC"}, "post_processor": plain, "decoder": plain,
                  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, plain]}}
    else:
        raise ModelError(f"pre-tokenizer {kind!r} is not known")
    return tokens, added, parts


def _merges_of(vocab):
    """SentencePiece lists no merges: each split of a token into two tokens is one, ranked by the token's place."""
    merges = []
    for token in vocab:
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        # Longest first part first; equal ones cannot be.
        merges += sorted(pairs, key=lambda pair: -len(pair[0]))
    return [list(pair) for pair in merges]


def _gemma_tokenizer(model):
    # Runs of spaces are stored as spaces, but spelled like all others in tokenizer.json.
    tokens = [SPACE * len(t) if t and not t.strip(" ") else t for t in model.tokenizer("tokens")]
    types, vocab = model.tokenizer("token_type"), _vocabulary(tokens)
    # Merges reach runs of spaces, so they need not be added tokens.
    added = [i for i, t in enumerate(tokens)
             if types[i] == CONTROL or (types[i] == USER_DEFINED and t.strip(SPACE))]
    bos_id = model.tokenizer("bos_token_id")
    bos = tokens[bos_id]

    def special(type_id):
        return {"SpecialToken": {"id": bos, "type_id": type_id}}

    def sequence(name, type_id):
        return {"Sequence": {"id": name, "type_id": type_id}}

    first, second = [special(0), sequence("A", 0)], [special(1), sequence("B", 1)]
    return tokens, added, {
        "model": _bpe(vocab, _merges_of(vocab), unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": first, "pair": first + second,
                           "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
    }


def make_tokenizer(model):
    """(tokenizer.json, tokenizer_config.json, chat template or None)"""
    make = {"gpt2": _byte_level_tokenizer, "llama": _gemma_tokenizer}.get(model.tokenizer("model"))
    if make is None:
        raise ModelError(f"tokenizer model {model.tokenizer('model')!r} is not known")
    tokens, added, parts = make(model)
    types = model.tokenizer("token_type")
    entries = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": types[i] == CONTROL} for i in added]
    order = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": entries}
    tokenizer |= {key: parts[key] for key in order}
    return tokenizer, _tokenizer_config(model, tokens, entries), model.metadata.get("tokenizer.chat_template")


def _tokenizer_config(model, tokens, added):
    def token(key):
        token_id = model.tokenizer(f"{key}_token_id")
        return None if token_id is None else tokens[token_id]

    config = {
        "add_bos_token": bool(model.tokenizer("add_bos_token", False)),
        "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added},
        "bos_token": token("bos"), "clean_up_tokenization_spaces": False, "eos_token": token("eos"),
        "model_max_length": model.get("context_length"), "pad_token": token("padding"),
        "tokenizer_class": {"llama": "PreTrainedTokenizerFast", "qwen2": "Qwen2Tokenizer",
                            "gemma3": "GemmaTokenizer"}[model.architecture],
        "unk_token": token("unknown"),
    }
    if model.architecture == "qwen2":  # its sequences begin with no token
        config |= {"add_prefix_space": False, "bos_token": None}
    template = model.metadata.get("tokenizer.chat_template")
    return dict(sorted(config.items())) | ({"chat_template": template} if template else {})
