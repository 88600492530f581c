"""The judge `nli:PATH`: local verifiers, small encoder models in ONNX files (extra ``nli``).

An address (`_address`) names a folder (`_folder`), whose configuration says how the model reads and what its
numbers mean (`_families`). Chunks are cut into windows (`_windows`), which the model reads beside a claim
(`_verifier`); `judge` turns its probabilities into verdicts.
"""
