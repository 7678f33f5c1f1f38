// The configuration of a stream or consumer, fetched when it is opened.
import { h } from "./dom.js";
import { block } from "./format.js";

export function configDetails(params, page) {
  const text = h("pre", { tabindex: "0", class: "code", "aria-label": "Configuration as JSON" });
  return h(
    "details",
    {
      ontoggle: async (event) => {
        if (!event.target.open) return;
        const data = await page.fetchData("config", params).catch((error) => ({ config: error.message }));
        text.textContent = block(JSON.stringify(data.config, null, 2));
      },
    },
    h("summary", {}, "Configuration"),
    text,
  );
}
