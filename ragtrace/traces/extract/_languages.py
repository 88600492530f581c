"""What prompts call the passages, the question and answering, in the languages that prompts are written in.

The words tell only that a prompt has passages; where they begin and end is told by its structure.
"""

from __future__ import annotations

import re
from typing import Final

_PASSAGES: Final = (
    # German
    r"kontext\w*|dokument\w*|quellen?\b|abschnitte?n?\b|ausz[uü]ge?n?\b|textstellen?\b|informationen|unterlagen"
    r"|wissensbasis|fundstellen?|suchergebnisse?n?"
    # French
    r"|contextes?\b|extraits?\b|informations\b|éléments\b|passages\b|résultats de recherche|connaissances"
    # Spanish
    r"|contextos?\b|fragmentos?\b|pasajes?\b|fuentes?\b|información|extractos?\b|resultados\b"
    # Portuguese
    r"|trechos?\b|passagens\b|fontes?\b|informaç(?:ão|ões)|excertos?\b"
    # Italian, Dutch, and what several share
    r"|contesto\b|documenti\b|estratti\b|brani\b|fonti\b|informazioni|documenten\b|fragmenten\b|bronnen\b"
    r"|documentos?\b|documents?\b|sources?\b"
    # Japanese
    r"|コンテキスト|文脈|参考(?:情報|資料|文献)|資料|文書|ドキュメント|抜粋|検索結果|情報|背景"
    # Chinese
    r"|上下文|参考(?:资料|内容|信息|文档)|资料|文档|已知(?:信息|内容)|知识库?|检索结果|引用|片段|材料|背景"
    r"|參考資料|文檔|已知資訊"
    # Korean, Russian
    r"|문맥|컨텍스트|문서|참고 ?자료|자료|검색 ?결과|정보|контекст\w*|документ\w*|источник\w*"
    r"|фрагмент\w*|отрыв\w*|информаци\w*"
    # English, Polish, Turkish, Swedish, Arabic
    r"|contexts?\b|information\b|excerpts\b|snippets\b|knowledge\b|fragment\w*|źródł\w*|bağlam\w*|belge\w*"
    r"|källor\w*|utdrag\w*|السياق|المستندات|المصادر"
)
_ANSWERS: Final = (
    r"antwort\w*|beantwort\w*|frage\b|répon\w+|question\b|respond\w*|contest(?:a|e|ar|es)\b|pregunta\b"
    r"|pergunta\b|rispond\w*|domanda\b|beantwoord\w*|antwoord\w*|vraag\b|答え|回答|質問|問い|解答|问题|問題|提问"
    r"|답변?|대답|질문|ответ\w*|вопрос\w*|odpowi\w+|pytani\w+|cevap\w*|soru\w*|svar\w*|fråg\w*|أجب|السؤال"
)
_QUESTIONS: Final = (
    r"(?:nutzer|benutzer|kunden)?frage|anfrage|question(?: de l'utilisateur)?"
    r"|pregunta(?: del usuario)?|consulta|pergunta(?: do usuário)?|domanda(?: dell'utente)?|vraag"
    r"|(?:ユーザーの)?質問|問い|(?:用户|用戶|我的)?(?:问题|問題|提问)(?:是|为)?|질문|вопрос(?: пользователя)?"
)
REPLY_ABROAD: Final = (
    r"(?:antwort|réponse|respuesta|resposta|risposta|antwoord|svar|odpowiedź|cevap|最终回答|最終回答|最终答案|回答"
    r"|答え|答案|최종 ?답변|답변|답|ответ)"
)
SOURCES_ABROAD: Final = (
    r"quellen?|fuentes?|fontes?|fonti|bronnen|références|参考(?:资料|文献)|出典|来源|引用|출처|источники"
)
_COLON: Final = r"[:\uff1a]"
_END: Final = r"[*_\u3011\uff09)\]]{0,4}"

NAMES_PASSAGES: Final = re.compile(rf"(?<![a-zà-ÿ])(?:{_PASSAGES})", re.IGNORECASE)
SAYS_TO_ANSWER: Final = re.compile(rf"(?<![a-zà-ÿ])(?:{_ANSWERS})", re.IGNORECASE)
ASKED_ABROAD: Final = re.compile(
    rf"[\W_]{{0,8}}(?:{_QUESTIONS})[ \u3000*_\u300d\u300f\u3011\]]{{0,4}}(?:{_COLON}|$)"
    r"[ \u3000*_\u300c\u300e]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
REPLIES_ABROAD: Final = re.compile(rf"[\W_]{{0,8}}{REPLY_ABROAD}[ *_\u3011]{{0,4}}{_COLON}", re.IGNORECASE)
HEADS_PASSAGES: Final = re.compile(
    rf"[^\n:\uff1a]{{0,160}}?(?<![a-zà-ÿ])(?:{_PASSAGES})[^\n:\uff1a]{{0,100}}{_END}{_COLON}"
    r"[ \u3000*_]{0,4}(?P<text>.*)",
    re.IGNORECASE,
)
BARE_HEAD_OF_PASSAGES: Final = re.compile(
    rf"(?:#{{1,6}} {{0,3}}|\*\*|={{2,}} ?|-{{3,}} ?|\u3010|\[)[^\n:\uff1a]{{0,40}}(?:{_PASSAGES})"
    r"[^\n:\uff1a]{0,40}[\s*=#\-\u3011\]]{0,9}",
    re.IGNORECASE,
)
HEADS_ELSE: Final = re.compile(
    r"[ \t]{0,3}(?:#{1,6} {0,3}|\*\*|={2,} ?|\u3010)(?!\d)[^\n]{1,60}"
    r"|[^\n:\uff1a.\u3002]{1,40}[:\uff1a][ \t]*"
)
"""A heading of something else, or a line that ends with a colon."""

OF_THE_CONVERSATION: Final = re.compile(
    r"\b(?:titles?|tags?|titel|titre|título|titolo|conversation|chat history|gespräch\w*|unterhaltung"
    r"|dialogue|conversación|conversa|conversazione|gesprek)\b|follow-?up question|标题|標題|对话|對話"
    r"|タイトル|会話|제목|대화|заголовок|беседы|разговора",
    re.IGNORECASE,
)
"""What a request for a title, tags, a summary or further questions speaks of."""

INSTRUCTS_ABROAD: Final = re.compile(
    r"[\W\d_]{0,6}(?:(?:wenn|falls) (?:du|sie|die antwort|der kontext|keine)\b|du (?:bist|sollst)\b"
    r"|sie sind\b|antworte\b|beantworte\b|erfinde\b|gib keine"
    r"|si (?:tu|vous) ne\b|si la réponse|si le contexte|tu es\b|vous êtes\b|réponds\b|répondez\b|n'invente"
    r"|si no (?:sabes|conoces|encuentras|está|hay)|si la respuesta|eres un|responde\b|contesta\b|no inventes"
    r"|se (?:não|você não)|se a resposta|você é\b|responda\b|não invente|se non|se la risposta|rispondi\b"
    r"|如果|若|你是|请|請|不要|回答(?!:|\uff1a)"
    r"|もし|わからない|分からない|あなたは|以下の指示|만약|если (?:ты|вы|ответ)|ответь)",
    re.IGNORECASE,
)
