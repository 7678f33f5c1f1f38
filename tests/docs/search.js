// Ask the search of the site, as its search page does: node search.js SITE < questions, one a line.
// Prints for each question the best pages as JSON, best first.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const site = process.argv[2];
const page = { console, Map, Set, URLSearchParams };
page.window = page;
page._ready = () => {}; // what waits for the page to be loaded
page.DOCUMENTATION_OPTIONS = {};
page.SPHINX_HIGHLIGHT_ENABLED = false;
page.document = { getElementById: () => ({ hasChildNodes: () => false, firstChild: null }) };
page._removeChildren = () => {};
vm.createContext(page);
const run = (file) => vm.runInContext(fs.readFileSync(path.join(site, file), "utf8"), page);
run("_static/language_data.js");
run("_static/searchtools.js");
vm.runInContext("this.Search = Search", page);
run("searchindex.js");

const answers = fs.readFileSync(0, "utf8").trim().split("\n").map((question) => {
  const found = page.Search._performSearch(...page.Search._parseQuery(question)).reverse();
  return [...new Set(found.map((result) => result[0]))];
});
console.log(JSON.stringify(answers));
