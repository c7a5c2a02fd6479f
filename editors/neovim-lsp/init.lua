-- Neovim's own LSP client, from 0.7 on; no plugin. Put this into init.lua.
-- vim.lsp.buf.code_action() on a comment "AGENT: what to do" has it done.
local server = {
  name = "acp-bridge",
  cmd = { "acp-bridge", "--model", "demo", "lsp" },
}

local started -- the one client of Neovim 0.7, which cannot look for a running one itself

vim.api.nvim_create_autocmd("FileType", {
  pattern = { "c", "cpp", "go", "java", "javascript", "lua", "markdown", "python", "rust", "sh", "typescript" },
  callback = function(event)
    local config = vim.tbl_extend("force", server, { root_dir = vim.fn.getcwd() })
    if vim.lsp.start then
      vim.lsp.start(config, { bufnr = event.buf })
      return
    end
    if not (started and vim.lsp.get_client_by_id(started)) then
      started = vim.lsp.start_client(config)
    end
    vim.lsp.buf_attach_client(event.buf, started)
  end,
})
