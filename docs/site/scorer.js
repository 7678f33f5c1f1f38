// How the search ranks a page. Sphinx counts the best word only, so many pages have the same score.
// A heading that contains the whole question comes first; pages that say what to do come before those about the inside.
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    const inside = /(tour|storage-format|node-log-format|raft-frames|development|compatibility|CHANGELOG|index)$|benchmarks|tests/;
    return score + (kind === SearchResultKind.title ? 20 : 0) - (inside.test(page) ? 3 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
