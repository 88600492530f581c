"""The judge steps that metrics share: one file each, listed in `table`.

Step A (*extract*) asks for the statements of the answer, step B (*verify*) for a verdict on each factual
claim among them, step R (*relevance*) for the relevance of each statement to the question, step C (*chunks*)
for a grade on each chunk, step D (*recall*) for a verdict on each sentence of the reference, step Q
(*questions*) for questions that the answer would answer. B and R need the result of A; the others start at
once. Code assigns the numbers that the judge refers to, and checks every reply:

- Claims that cite no shown sentence are rejected and counted. The step asks once more about sentences that no
  statement cites: small models list the first claim and stop.
- Verdict ids must be exactly the requested ids. Missing and repeated ids are requested once more, then stay
  unjudged. Unknown ids are rejected and counted. If the judge abstains from an id, it is not asked again.
- Chunk numbers that were not shown are dropped. A quote must be found in a chunk that the verdict cites; the
  chunk's own text replaces it. If it is not found, the verdict keeps its label without the quote.
- A truncated reply is requested again in halves (`ragtrace.metrics.asking`).
- A context that is too long for one call is divided into packs: supported if any pack supports, contradicted
  if one contradicts and none supports, unsupported only if every pack says so.
"""
