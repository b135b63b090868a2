// Before anything is drawn: light or dark, as chosen here, else as the machine is set.
(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
        let chosen = null;
        try { chosen = localStorage.getItem("howdah-theme"); } catch { /* storage may be off */ }
        document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    };
    apply();
    dark.addEventListener("change", apply);
})();
