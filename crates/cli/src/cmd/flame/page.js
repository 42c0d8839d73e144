"use strict";
// A function is [name, kind, inlined, module]; the module is null where the name contains it.
// A node is [function, parent, own, total]. Parents come before their children; node 0 is the root.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { functions, nodes } = data;
  const FN = 0, PARENT = 1, OWN = 2, TOTAL = 3, ROW = 20, MIN_PIXELS = 0.3;
  // Indent and border of a box, the width below which a box has no border at its sides, and the
  // fewest characters of a name that is cut.
  const BOX_PIXELS = 8, NARROW_PIXELS = 4, MIN_CHARACTERS = 3;
  const byId = (id) => document.getElementById(id);
  const graph = byId("graph"), status = byId("status"), search = byId("search"), matched = byId("matched");
  const children = nodes.map(() => []);
  nodes.forEach((node, index) => { if (index > 0) children[node[PARENT]].push(index); });
  const label = (index) => index === 0 ? "all" : functions[nodes[index][FN]][0];
  const moduleName = (index) => index === 0 ? null : functions[nodes[index][FN]][3];
  const fullLabel = (index) => moduleName(index) === null ? label(index) : label(index) + " (" + moduleName(index) + ")";
  const searchLabel = (index) => moduleName(index) === null ? label(index) : moduleName(index) + "!" + label(index);
  const kind = (index) => index === 0 ? "all" : functions[nodes[index][FN]][1];
  // Sorted by name, so that a function keeps its place from one page to the next.
  const byName = (a, b) => searchLabel(a) < searchLabel(b) ? -1 : searchLabel(a) > searchLabel(b) ? 1 : a - b;
  children.forEach((row) => row.sort(byName));

  let zoomed = 0, searchText = "", focused = 0;
  const formatNumber = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const formatAmount = (n) => data.unit === "ns"
    ? (n >= 1e9 ? (n / 1e9).toFixed(3) + " s" : n >= 1e6 ? (n / 1e6).toFixed(3) + " ms" : (n / 1e3).toFixed(1) + " µs")
    : formatNumber(n) + " " + data.unit + (n === 1 ? "" : "s");
  const formatPercent = (part, whole) => (whole > 0 ? 100 * part / whole : 0).toFixed(2) + " %";
  const describe = (index) => {
    const node = nodes[index];
    const inlined = index > 0 && functions[node[FN]][2] ? " (inlined)" : "";
    const share = formatPercent(node[TOTAL], nodes[0][TOTAL]);
    const own = node[OWN] > 0 ? ", own " + formatAmount(node[OWN]) : "";
    const hint = label(index) === "?" && kind(index) === "unknown" ? "\n" + data.hint : "";
    return fullLabel(index) + inlined + ": " + formatAmount(node[TOTAL]) + own + ", " + share + " of all" + hint;
  };
  const matches = (index) => searchText !== "" && index > 0 && searchLabel(index).toLowerCase().includes(searchText);
  const ancestors = (index) => {
    const row = [];
    for (let up = index; up !== 0; up = nodes[up][PARENT]) row.unshift(nodes[up][PARENT]);
    return row;
  };

  // Texts have the font of the boxes, so that their width is known before they are drawn.
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "12px system-ui, sans-serif";
  const widths = new Map();
  const measure = (text) => {
    if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
    return widths.get(text);
  };
  // The name with its module, the name, the beginning of the name, or nothing: what fits.
  function fit(index, pixels) {
    const whole = [fullLabel(index), label(index)].find((text) => measure(text) <= pixels);
    if (whole !== undefined) return whole;
    const characters = [...label(index)];
    let count = Math.floor(characters.length * pixels / measure(label(index)));
    const cut = () => characters.slice(0, count).join("") + "…";
    while (count >= MIN_CHARACTERS && pen.measureText(cut()).width > pixels) count -= 1;
    return count >= MIN_CHARACTERS ? cut() : "";
  }

  function box(index, depth, left, width, extra) {
    const div = document.createElement("div");
    const pixels = width * graph.clientWidth;
    const narrow = pixels < NARROW_PIXELS ? " narrow" : "";
    div.className = "node " + kind(index) + extra + narrow + (matches(index) ? " matched" : "");
    div.style.left = left * 100 + "%";
    div.style.width = width * 100 + "%";
    div.style.top = depth * ROW + "px";
    div.dataset.node = index;
    div.dataset.depth = depth;
    div.setAttribute("role", "treeitem");
    div.setAttribute("aria-level", depth + 1);
    div.tabIndex = index === focused ? 0 : -1;
    div.textContent = fit(index, pixels - BOX_PIXELS);
    div.title = describe(index);
    div.setAttribute("aria-label", fullLabel(index));
    return div;
  }

  function draw() {
    const pixels = Math.max(graph.clientWidth, 600);
    const page = document.createDocumentFragment();
    const up = ancestors(zoomed);
    up.forEach((index, depth) => page.append(box(index, depth, 0, 1, " above")));
    let deepest = up.length, hidden = 0;
    const pending = [[zoomed, up.length, 0, 1]];
    while (pending.length > 0) {
      const [index, depth, left, width] = pending.pop();
      page.append(box(index, depth, left, width, ""));
      deepest = Math.max(deepest, depth);
      let from = left;
      for (const child of children[index]) {
        const childWidth = nodes[index][TOTAL] > 0 ? width * nodes[child][TOTAL] / nodes[index][TOTAL] : 0;
        if (childWidth * pixels >= MIN_PIXELS) pending.push([child, depth + 1, from, childWidth]); else hidden += 1;
        from += childWidth;
      }
    }
    graph.replaceChildren(page);
    graph.style.height = (deepest + 1) * ROW + "px";
    graph.dataset.zoom = zoomed;
    graph.dataset.total = nodes[zoomed][TOTAL];
    graph.dataset.hidden = hidden;
    byId("out").disabled = zoomed === 0;
    showMatchedSum();
  }

  // Nodes below a match are not counted again.
  function showMatchedSum() {
    let sum = 0;
    const pending = [zoomed];
    while (searchText !== "" && pending.length > 0) {
      const index = pending.pop();
      if (matches(index)) sum += nodes[index][TOTAL]; else pending.push(...children[index]);
    }
    matched.dataset.sum = sum;
    matched.textContent = searchText === "" ? "" : formatAmount(sum) + ", " + formatPercent(sum, nodes[zoomed][TOTAL]) + " of what is shown";
  }

  function storeInUrl() {
    const parameters = new URLSearchParams();
    if (zoomed !== 0) parameters.set("zoom", zoomed);
    if (searchText !== "") parameters.set("search", search.value);
    history.replaceState(null, "", "#" + parameters);
  }
  function zoom(index) {
    zoomed = focused = index;
    draw();
    storeInUrl();
    focus(index);
  }
  function find(text) {
    searchText = text.toLowerCase();
    draw();
    storeInUrl();
  }
  function focus(index) {
    const element = graph.querySelector('[data-node="' + index + '"]');
    if (!element) return false;
    graph.querySelectorAll('[tabindex="0"]').forEach((element) => { element.tabIndex = -1; });
    focused = index;
    element.tabIndex = 0;
    element.focus({ preventScroll: false });
    return true;
  }
  function findSibling(index, step) {
    if (index === 0) return index;
    const row = children[nodes[index][PARENT]];
    for (let next = row.indexOf(index) + step; next >= 0 && next < row.length; next += step) {
      if (graph.querySelector('[data-node="' + row[next] + '"]')) return row[next];
    }
    return index;
  }
  function readUrl() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const index = Number.parseInt(parameters.get("zoom") ?? "0", 10);
    zoomed = focused = Number.isInteger(index) && index > 0 && index < nodes.length ? index : 0;
    search.value = parameters.get("search") ?? "";
    searchText = search.value.toLowerCase();
    draw();
  }

  const nodeOf = (event) => {
    const element = event.target.closest(".node");
    return element ? Number(element.dataset.node) : null;
  };
  graph.addEventListener("click", (event) => { const index = nodeOf(event); if (index !== null) zoom(index); });
  for (const kind of ["mouseover", "focusin"]) {
    graph.addEventListener(kind, (event) => { const index = nodeOf(event); if (index !== null) status.textContent = describe(index); });
  }
  graph.addEventListener("keydown", (event) => {
    const index = nodeOf(event);
    if (index === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const steps = {
      Enter: () => zoom(index),
      " ": () => zoom(index),
      ArrowUp: () => focus(nodes[index][PARENT]),
      ArrowDown: () => children[index].some((child) => focus(child)),
      ArrowLeft: () => focus(findSibling(index, -1)),
      ArrowRight: () => focus(findSibling(index, 1)),
      Home: () => focus(0),
    };
    if (Object.hasOwn(steps, event.key)) { event.preventDefault(); steps[event.key](); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape") {
      if (event.target === search && search.value !== "") { search.value = ""; find(""); }
      else if (zoomed !== 0) zoom(nodes[zoomed][PARENT]);
    }
  });
  search.addEventListener("input", () => find(search.value));
  byId("tools").addEventListener("submit", (event) => event.preventDefault());
  byId("out").addEventListener("click", () => zoom(0));
  addEventListener("resize", draw);
  addEventListener("hashchange", readUrl);
  byId("title").textContent = data.title;
  byId("note").textContent = data.note;
  readUrl();
})();
