// The version switch: offers the versions that SITE/versions.json lists, and keeps the page where the other version has it.
// A build that was published alone has no such list, and shows its own version only.
(async () => {
  const select = document.querySelector(".sidebar-versions select");
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const site = new URL("../", root);
  const here = root.pathname.split("/").at(-2);
  const page = location.pathname.slice(root.pathname.length);
  if (!select || location.protocol === "file:") return;

  const answer = await fetch(new URL("versions.json", site)).catch(() => null);
  if (!answer?.ok) return;
  const versions = await answer.json();
  if (!versions.includes(here)) return;

  select.replaceChildren(...versions.map((version) => new Option(version, version, false, version === here)));
  select.addEventListener("change", async () => {
    const start = new URL(`${select.value}/`, site);
    const same = new URL(page, start);
    const found = await fetch(same, { method: "HEAD" }).catch(() => null);
    location.href = found?.ok ? same : start;
  });
})();
