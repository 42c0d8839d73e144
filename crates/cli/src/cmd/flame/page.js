"use strict";
// A node is [function, parent, own, total]; parents come before their children, and node 0 is all there is.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { functions, nodes } = data;
  const FN = 0, PARENT = 1, OWN = 2, TOTAL = 3, ROW = 20, NARROWEST = 0.3;
  const byId = (id) => document.getElementById(id);
  const graph = byId("graph"), status = byId("status"), search = byId("search"), matched = byId("matched");
  const children = nodes.map(() => []);
  nodes.forEach((node, at) => { if (at > 0) children[node[PARENT]].push(at); });
  const label = (at) => at === 0 ? "all" : functions[nodes[at][FN]][0];
  const kind = (at) => at === 0 ? "all" : functions[nodes[at][FN]][1];
  // By name, so that a function stands at the same place from one page to the next.
  const byName = (a, b) => label(a) < label(b) ? -1 : label(a) > label(b) ? 1 : a - b;
  children.forEach((row) => row.sort(byName));

  let zoomed = 0, wanted = "", focused = 0;
  const grouped = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const amount = (n) => data.unit === "ns"
    ? (n >= 1e9 ? (n / 1e9).toFixed(3) + " s" : n >= 1e6 ? (n / 1e6).toFixed(3) + " ms" : (n / 1e3).toFixed(1) + " µs")
    : grouped(n) + " " + data.unit + (n === 1 ? "" : "s");
  const percent = (part, whole) => (whole > 0 ? 100 * part / whole : 0).toFixed(2) + " %";
  const describe = (at) => {
    const node = nodes[at];
    const inlined = at > 0 && functions[node[FN]][2] ? " (inlined)" : "";
    const share = percent(node[TOTAL], nodes[0][TOTAL]);
    const own = node[OWN] > 0 ? ", own " + amount(node[OWN]) : "";
    return label(at) + inlined + ": " + amount(node[TOTAL]) + own + ", " + share + " of all";
  };
  const matches = (at) => wanted !== "" && at > 0 && label(at).toLowerCase().includes(wanted);
  const ancestors = (at) => {
    const row = [];
    for (let up = at; up !== 0; up = nodes[up][PARENT]) row.unshift(nodes[up][PARENT]);
    return row;
  };

  function box(at, depth, left, width, extra) {
    const div = document.createElement("div");
    div.className = "node " + kind(at) + extra + (matches(at) ? " matched" : "");
    div.style.left = left * 100 + "%";
    div.style.width = width * 100 + "%";
    div.style.top = depth * ROW + "px";
    div.dataset.node = at;
    div.dataset.depth = depth;
    div.setAttribute("role", "treeitem");
    div.setAttribute("aria-level", depth + 1);
    div.tabIndex = at === focused ? 0 : -1;
    div.textContent = label(at);
    div.title = describe(at);
    return div;
  }

  function draw() {
    const pixels = Math.max(graph.clientWidth, 600);
    const page = document.createDocumentFragment();
    const up = ancestors(zoomed);
    up.forEach((at, depth) => page.append(box(at, depth, 0, 1, " above")));
    let deepest = up.length, hidden = 0;
    const waiting = [[zoomed, up.length, 0, 1]];
    while (waiting.length > 0) {
      const [at, depth, left, width] = waiting.pop();
      page.append(box(at, depth, left, width, ""));
      deepest = Math.max(deepest, depth);
      let from = left;
      for (const child of children[at]) {
        const wide = nodes[at][TOTAL] > 0 ? width * nodes[child][TOTAL] / nodes[at][TOTAL] : 0;
        if (wide * pixels >= NARROWEST) waiting.push([child, depth + 1, from, wide]); else hidden += 1;
        from += wide;
      }
    }
    graph.replaceChildren(page);
    graph.style.height = (deepest + 1) * ROW + "px";
    graph.dataset.zoom = zoomed;
    graph.dataset.total = nodes[zoomed][TOTAL];
    graph.dataset.hidden = hidden;
    byId("out").disabled = zoomed === 0;
    count();
  }

  // What is inside of a match is not counted again.
  function count() {
    let sum = 0;
    const waiting = [zoomed];
    while (wanted !== "" && waiting.length > 0) {
      const at = waiting.pop();
      if (matches(at)) sum += nodes[at][TOTAL]; else waiting.push(...children[at]);
    }
    matched.dataset.sum = sum;
    matched.textContent = wanted === "" ? "" : amount(sum) + ", " + percent(sum, nodes[zoomed][TOTAL]) + " of what is shown";
  }

  function remember() {
    const words = new URLSearchParams();
    if (zoomed !== 0) words.set("zoom", zoomed);
    if (wanted !== "") words.set("search", search.value);
    history.replaceState(null, "", "#" + words);
  }
  function zoom(at) {
    zoomed = focused = at;
    draw();
    remember();
    focus(at);
  }
  function find(text) {
    wanted = text.toLowerCase();
    draw();
    remember();
  }
  function focus(at) {
    const there = graph.querySelector('[data-node="' + at + '"]');
    if (!there) return false;
    graph.querySelectorAll('[tabindex="0"]').forEach((it) => { it.tabIndex = -1; });
    focused = at;
    there.tabIndex = 0;
    there.focus({ preventScroll: false });
    return true;
  }
  function beside(at, step) {
    if (at === 0) return at;
    const row = children[nodes[at][PARENT]];
    for (let next = row.indexOf(at) + step; next >= 0 && next < row.length; next += step) {
      if (graph.querySelector('[data-node="' + row[next] + '"]')) return row[next];
    }
    return at;
  }
  function restore() {
    const words = new URLSearchParams(location.hash.slice(1));
    const at = Number.parseInt(words.get("zoom") ?? "0", 10);
    zoomed = focused = Number.isInteger(at) && at > 0 && at < nodes.length ? at : 0;
    search.value = words.get("search") ?? "";
    wanted = search.value.toLowerCase();
    draw();
  }

  const nodeOf = (event) => {
    const it = event.target.closest(".node");
    return it ? Number(it.dataset.node) : null;
  };
  graph.addEventListener("click", (event) => { const at = nodeOf(event); if (at !== null) zoom(at); });
  for (const kind of ["mouseover", "focusin"]) {
    graph.addEventListener(kind, (event) => { const at = nodeOf(event); if (at !== null) status.textContent = describe(at); });
  }
  graph.addEventListener("keydown", (event) => {
    const at = nodeOf(event);
    if (at === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const steps = {
      Enter: () => zoom(at),
      " ": () => zoom(at),
      ArrowUp: () => focus(nodes[at][PARENT]),
      ArrowDown: () => children[at].some((child) => focus(child)),
      ArrowLeft: () => focus(beside(at, -1)),
      ArrowRight: () => focus(beside(at, 1)),
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
  addEventListener("hashchange", restore);
  byId("title").textContent = data.title;
  byId("note").textContent = data.note;
  restore();
})();
