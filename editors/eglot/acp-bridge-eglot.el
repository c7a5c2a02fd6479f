;;; acp-bridge-eglot.el --- acp-bridge as a language server  -*- lexical-binding: t; -*-

;; M-x eglot in a Python buffer starts it. M-x eglot-code-actions on a comment
;; "AGENT: what to do" has it done.

(require 'eglot)

(add-to-list 'eglot-server-programs
             '((python-mode python-ts-mode)
               . ("acp-bridge" "--model" "demo" "lsp")))

;;; acp-bridge-eglot.el ends here
