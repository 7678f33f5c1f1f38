// The dead letters of a stream: whose they are, and their replay.
import { address, h, setAttribute, setText } from "./dom.js";
import { counted, line, number } from "./format.js";

const OFF = "To replay them here, set replay: true in the block http_authorization.";

export class DeadLetters {
  // `params`: account and stream; `page`: has fetchData, post and refresh
  constructor(params, page) {
    this.params = params;
    this.page = page;
    this.next = 0;
    this.isBusy = false;
    this.intro = h("p");
    this.senders = h("p", { hidden: true });
    this.outcome = h("p", { role: "status" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.errors = h("ul", { class: "reasons", hidden: true, "aria-label": "Letters that failed" });
    this.replay = h("button", { type: "submit" }, "Replay");
    this.more = h(
      "button",
      { type: "button", hidden: true, onclick: () => this.send({ ...this.wanted, seq: this.next }) },
      "Continue",
    );
    this.form = this.makeForm();
    this.element = h(
      "section",
      { hidden: true, "aria-labelledby": "letters" },
      h("h2", { id: "letters" }, "Dead letters"),
      this.intro,
      this.senders,
      this.form,
      this.problem,
      this.outcome,
      this.errors,
    );
    this.load();
  }

  makeForm() {
    const field = (name, label, more) => {
      const input = h("input", { name, autocomplete: "off", spellcheck: "false", ...more });
      return h("label", {}, h("span", {}, label), input);
    };
    const keep = h("input", { type: "checkbox", name: "keep" });
    return h(
      "form",
      { class: "tools", hidden: true, onsubmit: (event) => this.submitted(event) },
      field("consumer", "Consumer", { placeholder: "all" }),
      field("subject", "Subject of the message", { placeholder: "orders.*.new or >" }),
      field("reason", "Reason begins with", { placeholder: "max_deliver or term" }),
      field("limit", "Letters at most", { type: "number", min: "1", max: "1000", value: "100", required: true }),
      h("label", { class: "check" }, keep, " Keep the letters"),
      this.replay,
      this.more,
    );
  }

  // A view may be closed before the answer: then nobody sees the section.
  async load() {
    try {
      this.update(await this.page.fetchData("dead_letters", this.params));
    } catch {
      // the view itself reports what is wrong
    }
  }

  update(data) {
    if (data.letters || data.num_senders) this.element.hidden = false; // it stays after the last letter
    this.form.hidden = !data.replay || !data.is_leader;
    const leader = data.leader ? `Open the dashboard of ${line(data.leader, 60)}, which leads the stream.` : "";
    const where = data.is_leader ? "" : leader || "The stream has no leader now.";
    const what = data.replay
      ? where || "A replay publishes the messages of letters again, to the subjects that they came from."
      : OFF;
    setText(this.intro, `${data.letters ? "This stream holds dead letters" : "It holds no letter now"}. ${what}`);
    const links = data.senders.map((each) => {
      const view = each.consumer === undefined ? "stream" : "consumer";
      const text = each.consumer === undefined ? each.stream : `${each.stream} › ${each.consumer}`;
      return h("a", { href: address(view, { acc: this.params.acc, ...each }) }, line(text, 120));
    });
    const rest = data.num_senders - links.length;
    this.senders.hidden = !links.length;
    this.senders.replaceChildren(
      "Sent by: ",
      ...links.flatMap((link, at) => (at ? [", ", link] : [link])),
      rest > 0 ? ` and ${number(rest)} more` : "",
    );
  }

  submitted(event) {
    event.preventDefault();
    const given = new FormData(this.form);
    const wanted = { seq: 0, limit: Number(given.get("limit")), keep: given.has("keep") };
    for (const name of ["consumer", "subject", "reason"]) wanted[name] = given.get(name).trim();
    this.send(wanted);
  }

  async send(wanted) {
    if (this.isBusy) return;
    this.busy(true);
    this.wanted = wanted; // "Continue" goes on with these, whatever the form has then
    setText(this.outcome, "Replaying …");
    this.problem.hidden = true;
    try {
      this.show(await this.page.post("replay", this.params, wanted));
    } catch (error) {
      setText(this.outcome, "");
      setText(this.problem, line(error.isAnswer ? error.message : `No answer: ${error.message}`, 600));
      this.problem.hidden = false;
    }
    this.busy(false);
    this.load();
    this.page.refresh();
  }

  // A button that is disabled would lose the focus.
  busy(isBusy) {
    this.isBusy = isBusy;
    for (const button of [this.replay, this.more]) setAttribute(button, "aria-disabled", isBusy ? "true" : null);
  }

  show(answer) {
    this.next = answer.next_seq;
    const skipped = answer.skipped ? `, ${number(answer.skipped)} skipped (not letters)` : "";
    const rest = this.next ? ` Messages from sequence ${number(this.next)} on are not examined yet.` : "";
    setText(
      this.outcome,
      `${counted(answer.replayed, "letter")} replayed, ${number(answer.failed)} failed${skipped}.${rest}`,
    );
    const errors = (answer.errors ?? []).map((each) =>
      h("li", {}, h("strong", {}, `Sequence ${number(each.seq)}`), ` ${line(each.error, 400)}`),
    );
    this.errors.replaceChildren(...errors);
    this.errors.hidden = !errors.length;
    this.hideMore(!this.next);
  }

  // A button that vanishes must not take the focus with it.
  hideMore(isHidden) {
    if (isHidden && document.activeElement === this.more) this.replay.focus();
    this.more.hidden = isHidden;
  }
}
