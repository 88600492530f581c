"""Sentences of an answer that state no fact about the world, recognized by their wording.

Those about the answer and its sources are known in English, those that decline to answer in the languages
that people ask in. A language has wordings that are a refusal by themselves, and three sets of words that
make one together: a negation, a word for the sources, and a verb of holding or telling.
"""

# ruff: noqa: RUF001  the languages have their own letters and marks

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

SENTENCE_ENDS = ".!。！｡।"
"""What ends a statement in several scripts."""
_QUESTION_MARKS = ("?", "？", "؟")
_SOURCE = (
    r"(?:(?:the|these|this|those|any|all|your|given|provided|supplied|retrieved|available|following|above) )*"
    r"(?:passages?|contexts?|documents?|sources?|texts?|information|knowledge base|search results?|excerpts?)"
    r"(?: (?:provided|given|above|supplied|available))?(?: \d+(?:(?:,| and|, and) \d+)*)?"
)
_CANNOT = r"(?:unable|not able|not possible|impossible|cannot|can't|can not|could not|couldn't)"
_TELL = r"(?:answer|answered|determine|determined|provide|say|find|help|conclude|tell)"
_REFUSAL = re.compile(
    rf"^(?:(?:i'm |i am |we are |we're )?(?:sorry|afraid|apologi[sz]e)\b.{{0,40}}?)?"
    rf"(?:(?:i am |i'm |we are |it is )?{_CANNOT}(?: to)? {_TELL}\b|(?:i|we) {_CANNOT} {_TELL}\b"
    r"|(?:i|we) (?:do not|don't) (?:know|have (?:enough|sufficient|any))"
    rf"|(?:the|this|your) question {_CANNOT} be answered"
    r"|(?:there is )?(?:not enough|no|insufficient) (?:information|context|data)\b"
    rf"|[^.]{{0,80}}\b{_CANNOT}(?: to)?(?: be)? {_TELL}\b"
    rf"[^.]{{0,80}}\b(?:based on|from|using|with) {_SOURCE})",
    re.IGNORECASE,
)
_SILENT = re.compile(
    rf"^[^.]{{0,60}}?\b(?:none of )?{_SOURCE} (?:\w+ ){{0,2}}?"
    r"(?:(?:do|does|did)(?: not|n't)|fails? to|lacks?|contains? no|makes? no|offers? no|gives? no)\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"^(?:(?:i hope|hope) (?:this|that|it) helps|let me know\b|feel free\b|please (?:let|note that i|feel)\b"
    r"|(?:sure|certainly|of course)[!,.]|as an ai\b)",
    re.IGNORECASE,
)
_ARTEFACT = r"(?:summar(?:y|ies)|answers?|responses?|overviews?|recaps?|paraphrases?)"
_ANNOUNCED = re.compile(
    r"^(?:(?:sure|certainly|of course|okay|ok|absolutely)[,.!]* )?"
    r"(?:(?:based (?:up)?on|according to|using|given|from) [^,:]{1,60}, )?"
    r"(?:here(?:'s| is| are)|(?:the )?following is|below is|this is) (?:\w+[ -]){0,4}?"
    rf"{_ARTEFACT}\b[^:]{{0,120}}:$"
    r"|^\W*(?:word count|length): ?\d+(?: words)?\W*$|^\W*\d+ words\W*$",
    re.IGNORECASE,
)
_BASED_ON = re.compile(
    rf"^(?:(?:so|therefore|however|overall|thus)\W+)?"
    rf"(?:based (?:up)?on|according to|as per|from|given|per|in) (?:the )?(?:{_SOURCE})\W+",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"(?<!\s)\s*[(\[](?:from |see |source: )?(?:passages?|documents?|sources?|chunks?)[ \d,&and]+[)\]]"
    r"|\b(?:passages?|documents?|sources?|chunks?) \d+(?:(?:,| and|, and|&) \d+)*",
    re.IGNORECASE,
)

_MAY_CITE = re.compile(r"[\[\](【〔†{^]|https?:|<sup")
_LINK = re.compile(
    r"!?\[([^\[\]]{0,300})\]\((?:https?:|mailto:|/|#|\.)[^()\s]{0,2000}(?: \"[^\"]{0,200}\")?\)"
)
_PLACE = (
    r"(?:pp?|pages?|pg|S|Seiten?|páginas?|pág|pag|pagin[ae]|blz|str|стр|sect?(?:ion)?s?|Abschnitt"
    r"|Kap(?:itel)?|ch|§)\.?"
)
_SOURCES = (
    r"(?:sources?|src|docs?|documents?|passages?|chunks?|refs?|references?|quelle|dokument|fuente"
    r"|documento|fonte|bron|źródło|источник|kilde|källa|kaynak|出典|来源|來源|出处|参考|출처|المصدر)"
)
_CITATION = re.compile(
    r"\s{0,3}(?:(?<=et al\.) \((?:19|20)\d\d[a-z]?\)|\{\{\d{1,3}\}\}|\^\d{1,3}\^"
    r"|\[\[?\^?\s*\d{1,3}(?:\s*[-–,;]\s*\^?\d{1,3})*\s*\]?\](?:\([^()\s]{0,2000}\))?"
    r"|【[^【】]{0,200}】|〔[^〔〕]{0,200}〕"
    r"|<sup>[^<>]{0,40}</sup>|<?https?://[^\s<>()\[\]]{1,2000}>?"
    rf"|[(\[]\s*(?i:{_SOURCES})\s*[:#№]?\s*[^()\[\]]{{0,160}}[)\]]"
    rf"|[(\[]\s*(?i:see |siehe |vgl\. |voir |cf\. )?(?i:{_PLACE})\s*\d[^()\[\]]{{0,40}}[)\]]"
    r"|\((?:(?:see|e\.g\.,?|cf\.|vgl\.|siehe|voir) )?"
    r"(?!(?i:jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez|since|until|from|in|by"
    r"|version|q[1-4])\b[a-z]*)"
    r"[A-ZÀ-Þ][\w'’.-]{1,40}(?:,? (?:et al\.?|and|&|und|y|et|e|[A-ZÀ-Þ][\w'’.-]{0,40})){0,6},? (?:19"
    r"|20)\d\d[a-z]?"
    r"(?:[,;:] [^()]{0,120})?\))"
)
"""Marks of a source in an answer: ``[3]``, ``【4:0†policy.pdf】``, ``(Smith 2019)``, ``(p. 27)``, links."""
_STEP = re.compile(
    r"^\W*(?:(?:step|schritt|étape|etape|paso|passo|passaggio|stap|krok|шаг|крок|steg|trin|adım|vaihe"
    r"|pas)\s*\d{1,2}\s*[:.)–-]"
    r"|(?:步骤|步驟|手順|ステップ|단계)\s*\d{1,2}\s*[:：.、]|第\s*\d{1,2}\s*步\s*[:：,，、]?"
    r"|\d{1,2}\s*단계\s*[:：]?|(?:الخطوة|चरण)\s*\d{1,2}\s*[:：]?)\s*",
    re.IGNORECASE,
)


_KEPT = 1024
"""Sentences of an answer are looked at when claims are listed, and again with each pack of chunks."""


@lru_cache(maxsize=_KEPT)
def is_refusal(sentence: str) -> bool:
    """Return whether the sentence declines to answer: "Unable to answer based on given passages."."""
    return bool(_REFUSAL.match(_plain(sentence)))


@lru_cache(maxsize=_KEPT)
def is_meta(sentence: str) -> bool:
    """Return whether the sentence is about the answer or its sources, asks, or announces what follows."""
    plain = _plain(sentence)
    announces = plain.endswith((":", "：")) and len(plain.split()) <= 25
    return announces or plain.endswith(_QUESTION_MARKS) or bool(_ADDRESS.match(plain) or _SILENT.match(plain))


_BARE_REPLY: Final = re.compile(
    r"yes|no|true|false|correct|incorrect|right|wrong|maybe|sometimes|sure|okay|ok|thanks|hello|hi|ja|nein|wahr"
    r"|falsch|oui|non|vrai|faux|sí|verdadero|falso",
    re.IGNORECASE,
)


def is_bare_reply(text: str) -> bool:
    """Return whether a word says yes or no, or greets, which no chunk needs to say."""
    return _BARE_REPLY.fullmatch(text) is not None


def is_citation(sentence: str) -> bool:
    """Return whether the sentence is the mark of a source and nothing else: "(Passage 2)"."""
    return not any(map(str.isalnum, _REFERENCE.sub("", sentence)))


def announces_answer(sentence: str) -> bool:
    """Return whether the sentence is only about the answer: "Here's a summary in 92 words:".

    Narrower than `is_meta`: "Here are the steps to draw a cone:" says that there are such steps.
    """
    return bool(_ANNOUNCED.match(_plain(sentence)))


@lru_cache(maxsize=_KEPT)
def without_source(sentence: str) -> str:
    """Remove the parts that only name the source: "Based on the passages, water boils (Passage 2)."."""
    rest = _BASED_ON.sub("", sentence, count=1)
    begun = rest if rest == sentence else rest[:1].upper() + rest[1:]
    if _MAY_CITE.search(begun):
        begun = _CITATION.sub("", _LINK.sub(r"\1", begun))
    return _REFERENCE.sub("", _STEP.sub("", begun)).strip() or sentence


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("’", "'").replace("*", "").split())[:300]


class _Wording(NamedTuple):
    sure: str
    negations: str = ""
    sources: str = ""
    verbs: str = ""


_WORDINGS: Final = (
    _Wording(  # English
        r"(?:do not|don't|dont) (?:really |actually |currently )?(?:know|have (?:access|(?:any |enough "
        r"|sufficient |that |the |this |specific )?(?:info|information|data|details|answer|knowledge)))"
        r"|i(?:'m| am) (?:\w+ )?(?:not (?:\w+ )?(?:sure|certain|able)|unsure|unable)|no idea\b|i "
        r"(?:could|can)(?:not|n't| not) (?:\w+ )?(?:find|answer|say|tell|determine|provide|help|assist"
        r"|locate|confirm)|i have no (?:information|info|data|idea|knowledge)"
        r"|(?:i'd|i would|i) need (?:more|additional|further) (?:details?|information|context)"
        r"|there (?:is|was|'s) nothing (?:\w+ ){0,4}(?:context|documents?|passages?|sources?|texts?)\b"
        r"|^not (?:specified"
        r"|mentioned|stated|available|provided|given|found|included|covered|listed|clear|known)|\bno "
        r"(?:\w+ )?(?:information|mention|details|data|answer|results?|documents?) (?:about|on|of"
        r"|regarding|for|was|were|is available|are available|available|found|in the|to answer|provided"
        r"|given)|it(?:'s| is) (?:not possible|impossible|unclear|unknown)(?: from|,|\.| to (?:answer"
        r"|say|tell|determine)|$)|insufficient (?:information|context|data)|as an ai\b.{0,40}(?:don't"
        r"|do not|can't|cannot)",
        r"no|not|none|nothing|never|cannot|lacks?|fails?|\w+n't",
        r"contexts?|documents?|passages?|sources?|texts?|information|knowledge base|search results?"
        r"|excerpts?",
        r"contain\w*|mention\w*|says?|states?|find|found|provide\w*|include\w*|specif\w*|address\w*"
        r"|cover\w*|discuss\w*|indicat\w*|answer\w*|tells?|details?",
    ),
    _Wording(  # German
        r"\bich (?:weiß|weiss|kenne|kann|konnte|habe|finde|bin mir)\b.{0,60}\b(?:nicht|nichts"
        r"|keine?n?)\b|\b(?:weiß|weiss|kann|konnte|habe|finde) ich\b.{0,60}\b(?:nicht|nichts|keine?n?)\b"
        r"|keine ahnung|keine (?:\w+ )?(?:informationen|angaben?|auskunft|antwort|hinweise)\b|nicht "
        r"(?:möglich, (?:das|die)|bekannt\b|angegeben|beantwort)",
        r"nicht|nichts|kein\w*|weder",
        r"kontext\w*|dokument\w*|quellen?|text\w*|unterlagen|passagen?|auszüg\w*|abschnitt\w*"
        r"|informationen|frage",
        r"enth\w+|steh\w+|find\w+|gefunden|erwähn\w+|genannt|hervor\w*|entnehm\w+|vorhanden|lieg\w+|gibt"
        r"|beantwort\w+|angegeben|sag\w+",
    ),
    _Wording(  # French
        r"\bje (?:ne |n')(?:sais|connais|peux|dispose|trouve|suis pas (?:sûr|en mesure)|parviens|ai "
        r"(?:pas|aucune|trouvé))|aucune (?:information|idée|mention|précision|réponse)|impossible de "
        r"(?:répondre|déterminer|dire)|\bpas (?:d'informations?|de réponse)|informations? insuffisantes?"
        r"|^non (?:précisé|spécifié|mentionné|disponible)",
        r"ne|n'\w+|pas|aucune?|rien",
        r"contexte|documents?|sources?|textes?|passages?|extraits?|informations?|question",
        r"\w*contien\w*|\w*mention\w*|trouv\w*|\w*indiqu\w*|précis\w*|répond\w*|permet\w*|fourni\w*"
        r"|figur\w*|évoqu\w*|inclu\w*|parl\w*|donn\w*",
    ),
    _Wording(  # Spanish
        r"\bno (?:lo )?(?:sé|puedo (?:respond|ayud|encontr|determin|dec|proporcion)\w*|tengo (?:\w+ "
        r")?(?:informaci|acceso|datos|respuesta|conocimiento|idea)\w*|encuentro|encontré|dispongo"
        r"|cuento con|hay (?:\w+ )?(?:información|datos|mención|respuesta|referencias?|detalles)|se "
        r"(?:menciona|indica|especifica|encuentra|encontró|proporciona)|he encontrado|estoy segur|es "
        r"posible (?:respond|determin)\w*)|desconozco|ninguna información|información insuficiente|^no "
        r"(?:especificad|disponible)",
        r"no|ning\w+|nada|tampoco",
        r"contexto|documentos?|fuentes?|textos?|pasajes?|fragmentos?|información|pregunta",
        r"contien\w*|mencion\w*|encuentr\w*|encontr\w*|indic\w*|especific\w*|aparec\w*|respond\w*"
        r"|proporcion\w*|incluy\w*|figura\w*|habl\w*|dice\w*",
    ),
    _Wording(  # Italian
        r"\bnon (?:lo )?(?:so\b|saprei|posso (?:rispond|aiut|dir|trov|forn)\w*|ho (?:trovato"
        r"|informazioni|abbastanza|sufficienti|accesso|idea|la risposta)|sono (?:in grado|sicur"
        r"|riuscit)\w*|riesco|è possibile (?:rispond|determ|stabil)\w*|dispongo|ci sono (?:\w+ "
        r")?(?:informazioni|dati|riferimenti))|nessuna (?:informazione|idea|menzione|risposta)"
        r"|informazioni insufficienti|^non (?:specificat|disponibil|menzionat)",
        r"non|nessun\w*|niente|nulla",
        r"contesto|document[oi]|font[ei]|test[oi]|passagg\w+|brani?|informazion[ei]|domanda",
        r"contien\w*|contengono|menzion\w*|trov\w*|indic\w*|specific\w*|rispond\w*|forni\w*|riport\w*"
        r"|present[ei]|include\w*|parla\w*",
    ),
    _Wording(  # Portuguese
        r"\bnão (?:sei|posso (?:respond|ajud|encontr|diz|forn)\w*|tenho (?:\w+ )?(?:informa|acesso"
        r"|certeza|dados|conhecimento|resposta)\w*|encontrei|encontro|consigo|consegui|disponho|há "
        r"(?:\w+ )?(?:informa|men|dados|detalhes|refer)\w*|é possível (?:respond|determin|saber)\w*|foi "
        r"(?:possível|encontrad|mencionad)\w*)|desconheço|nenhuma (?:informação|menção|resposta)"
        r"|informaç\w+ insuficientes?|^não (?:especificad|disponív|mencionad)",
        r"não|nenhum\w*|nada",
        r"contexto|documentos?|fontes?|textos?|trechos?|passagens?|informaç\w+|pergunta",
        r"cont[eéê]m|menciona\w*|encontr\w*|indica\w*|especific\w*|respond\w*|fornec\w*|consta\w*"
        r"|inclu\w*|apresent\w*|fala\w*",
    ),
    _Wording(  # Dutch
        r"\b(?:ik (?:weet|kan|kon|heb|vind|ben)|(?:weet|kan|kon|heb|vind|ben) ik)\b.{0,60}\b(?:niet|geen"
        r"|niets)\b|geen idee|geen (?:informatie|antwoord|gegevens|vermelding)\b|onvoldoende informatie"
        r"|^niet (?:bekend|vermeld|beschikbaar)",
        r"niet|geen|niets|nergens",
        r"context|document\w*|bron\w*|teksten?|passages?|fragment\w*|informatie|vraag",
        r"bevat\w*|staa\w*|vermeld\w*|vind\w*|gevonden|genoemd|noem\w*|beantwoord\w*|beschikbaar",
    ),
    _Wording(  # Polish
        r"\bnie (?:wiem|mogę|potrafię|jestem (?:w stanie|pew)\w*|mam (?:informacji|dostępu|danych"
        r"|pojęcia)|znalaz\w+|znam|znajduję|udało|można (?:odpowiedzieć|określić|ustalić)|ma "
        r"(?:informacji|wzmianki|danych|odpowiedzi)|podano)|\bbrak (?:\w+ )?(?:informacji|danych"
        r"|odpowiedzi|wzmianki)",
        r"nie|brak|żadn\w*|nigdzie",
        r"kontek\w*|dokument\w*|źród\w*|tekst\w*|tekś\w*|fragmen\w*|informac\w*|pytani\w*|materiał\w*",
        r"zawier\w*|wspomin\w*|znajd\w*|znalez\w*|podaj\w*|podan\w*|odpowied\w*|odpowiad\w*|opisuj\w*"
        r"|mówi\w*|brak",
    ),
    _Wording(  # Russian, Ukrainian
        r"\bне (?:знаю|могу|можу|наш[её]л|нашла|знайш\w+|уверен\w*|впевнен\w*|располагаю|удалось|вдалося"
        r"|найдено|указано|вказано|известно|відомо)|\b(?:нет|немає) (?:\w+ )?(?:информации|інформації"
        r"|данных|даних|ответа|відповіді|сведений|упоминан\w*)|(?:недостаточно|недостатньо) "
        r"(?:информации|інформації|данных|даних)|затрудняюсь|у (?:меня|мене) (?:нет|немає)|(?:информация"
        r"|інформація) (?:отсутствует|відсутня)",
        r"не|нет|немає|ничего|нічого|отсутств\w*|відсутн\w*",
        r"контекст\w*|документ\w*|источник\w*|джерел\w*|текст\w*|фрагмент\w*|информаци\w*|інформаці\w*"
        r"|вопрос\w*|материал\w*",
        r"содерж\w*|міст\w*|упомин\w*|упомян\w*|згад\w*|найд\w*|знайд\w*|указан\w*|вказ\w*|говор\w*"
        r"|отве\w*|нет|немає|сказан\w*|отсутств\w*|відсутн\w*",
    ),
    _Wording(  # Swedish, Danish, Norwegian
        r"\b(?:jag|jeg)\b.{0,20}\b(?:vet|ved|kan|har|hitta\w*|finder|finner|fandt|fant|är"
        r"|er)\b.{0,40}\b(?:inte|ikke|ingen|inga|inget)\b|\b(?:vet|ved|kan|har|hittar) (?:jag"
        r"|jeg)\b.{0,20}\b(?:inte|ikke|ingen|inga)\b|ingen aning|ingen anelse|ing[ea]n? (?:information"
        r"|informasjon|oplysninger|opplysninger|uppgifter)\b|(?:framgår|fremgår) (?:inte|ikke)",
        r"inte|ikke|ingen|inga|inget|ingenting|intet|saknas|mangler",
        r"kontekst\w*|kontext\w*|sammanhang\w*|sammenheng\w*|dokument\w*|käll\w*|kilde\w*|text\w*"
        r"|tekst\w*|informa\w*|fråga\w*|uppgift\w*|oplysning\w*|opplysning\w*",
        r"innehåll\w*|indehold\w*|innehold\w*|nämn\w*|nævn\w*|nevn\w*|fin[nd]s|finnes|findes|framgå\w*"
        r"|fremgå\w*|står|svar\w*|besvar\w*|saknas|mangler",
    ),
    _Wording(  # Finnish
        r"\ben (?:\w+ )?(?:tiedä|osaa|voi|löydä|löytänyt|pysty)|\bei (?:ole )?(?:tietoa|mainita|mainittu"
        r"|löydy|löytynyt|kerrota)"
    ),
    _Wording(  # Czech, Slovak
        r"\bnev(?:ím|iem)\b|\bne(?:mohu|můžu|môžem) (?:\w+ )?(?:odpov|najít|nájsť|ur[čc])|\bnemám "
        r"(?:\w+ )?(?:informac|informác|dostat)\w*|\bnenaš\w+|\bnelze (?:odpovědět|určit)|\b(?:není|nie "
        r"je) (?:\w+ )?(?:uveden|zmín|možné|známo|jasn)\w*|žádné informace|žiadne informácie",
        r"ne(?:obsahuj|uvád|zmiňuj|spomín|ní|nájd|najd)\w*",
        r"kontext\w*|dokument\w*|zdroj\w*|text\w*|informac\w*|informác\w*",
        r"\w*obsahuj\w*|\w*uvád\w*|\w*zmiňuj\w*|\w*spomín\w*|uveden\w*|není|nen[aá]jd\w*",
    ),
    _Wording(  # Turkish
        r"bilmiyorum|bilgim yok|bulamadım|bulunamadı|(?:cevap|yanıt)(?:layam\w+| verem\w+)|emin değilim"
        r"|söyleyemem|bilgi (?:yok|bulunmuyor|bulunmamakta|verilmemiş|mevcut değil|yer almıyor)|yeterli "
        r"bilgi",
        r"yok|değil|bulunm\w+|içermiyor|almıyor|almamakta\w*|belirtilme\w+|geçmiyor",
        r"bağlam\w*|belge\w*|metin\w*|metn\w*|kaynak\w*|bilgi\w*|dokü?man\w*",
        r"yok|değil|bulunm\w+|içermiyor|almıyor|almamakta\w*|belirtilme\w+|geçmiyor",
    ),
    _Wording(  # Japanese
        r"[わ分]かり(?:ません|かねます)|[わ分]からない|存じません|知りません|(?:お答え|回答|判断|提供"
        r"|お手伝い)(?:は)?でき(?:ません|かねます|ない)|答えられ(?:ません|ない)|情報(?:が"
        r"|は)[^。]{0,8}(?:ありません|ない|いません|見つかりません)|見つ(?:かり|けられ)ません(?:でした)?"
        r"|記載(?:が|は|されて)[^。]{0,6}(?:ありません|いません|ない)|不明です|(?:文脈|コンテキスト|資料"
        r"|文書|ドキュメント|文章)[^。]{0,40}(?:ありません|いません|できません)"
    ),
    _Wording(  # Chinese
        r"不知道|不清楚|不[确確]定|[无無]法(?:回答|[确確]定|判[断斷]|提供|得知|找到|[协協]助|[帮幫]助)"
        r"|不能(?:回答|[确確]定|提供)|[没沒]有(?:找到|提到|提及|相[关關]|足[够夠]|任何|[关關]于|關於"
        r"|[说說]明)|未(?:提及|提到|找到|[说說]明|提供|涉及)|(?:信息|[资資][讯訊料]|内容|內容)不足"
    ),
    _Wording(  # Korean
        r"모르겠|모릅니다|알 수 없|찾을 수 없|찾지 못|답(?:변)?(?:을)? ?(?:할|드릴) 수 없|정보(?:가|는"
        r"|를)? ?(?:없|찾|제공)|확인할 수 없|언급(?:되지|이 없|하지)|나와 있지 않|(?:문서|문맥|자료"
        r"|컨텍스트|텍스트).{0,40}(?:없|않)"
    ),
    _Wording(  # Arabic
        r"لا (?:أعرف|اعرف|أعلم|اعلم|أستطيع|استطيع|يمكنني|أملك|أدري|توجد معلومات|يوجد معلومات|يمكن "
        r"(?:الإجابة|تحديد))|ليس(?:ت)? لد[يى]|لم (?:أجد|أعثر)|غير (?:مذكور|متوفر|متاح)|معلومات (?:كافية"
        r"|غير كافية)",
        r"لا|لم|ليس|غير",
        r"(?:ال)?سياق|(?:ال)?مستند\w*|(?:ال)?وثيق\w*|(?:ال)?وثائق|(?:ال)?نص\w*|(?:ال)?مصادر"
        r"|(?:ال)?معلومات",
        r"[يت]حتوي|[يت]ذكر|[يت]توفر|[يت]تضمن|ذكر|مذكور|يرد",
    ),
    _Wording(  # Hindi
        r"नहीं (?:पता|जानत|मालूम|मिली|मिला|बता सक)|(?:पता|मालूम) नहीं|जानकारी (?:\S+ ){0,2}नहीं|उत्तर "
        r"नहीं दे|(?:संदर्भ|दस्तावेज़?\S*|पाठ) में[^।]{0,60}नहीं"
    ),
    _Wording(  # Hebrew
        r"לא (?:יודע|יודעת|יכול|יכולה|מצאתי|ידוע|צוין|מוזכר)|אין (?:לי )?(?:מידע|תשובה|נתונים)"
    ),
    _Wording(r"ไม่ทราบ|ไม่รู้|ไม่พบข้อมูล|ไม่มีข้อมูล|ไม่สามารถ(?:ตอบ|ระบุ|ให้)|ไม่ได้(?:ระบุ|กล่าวถึง)"),  # Thai
    _Wording(  # Vietnamese
        r"không (?:biết|tìm thấy|rõ\b|thể (?:trả lời|xác định|cung cấp)|có (?:thông tin|dữ liệu|đề cập)"
        r"|được đề cập|đề cập)"
    ),
    _Wording(  # Indonesian, Malay
        r"tidak (?:tahu|(?:dapat|bisa) (?:menjawab|menemukan|memberikan|menentukan)|menemukan|memiliki "
        r"(?:informasi|data)|ada (?:informasi|data)|yakin|disebutkan|tersedia)"
    ),
    _Wording(  # Romanian
        r"\bnu (?:știu|ştiu|stiu|pot (?:răspunde|oferi|spune)|am (?:informații|găsit|acces|suficiente)"
        r"|există informații|sunt sigur|se menționează|este (?:menționat|specificat|clar))|nicio "
        r"informație",
        r"nu|nici\w*",
        r"contextul?\w*|document\w*|text\w*|surs\w*|pasaj\w*",
        r"conțin\w*|mențione\w*|includ\w*|specific\w*|ofer\w*|apare|găs\w*",
    ),
    _Wording(  # Hungarian
        r"\bnem (?:tudom|találtam|találok|tudok|áll rendelkezés|szerepel|derül ki)|\bnincs (?:\w+ "
        r")?(?:információ|adat)",
        r"nincs\w*|nem|sem",
        r"szöveg\w*|dokumentum\w*|kontextus\w*|forrás\w*|információ\w*",
        r"nincs\w*|tartalmaz\w*|említ\w*|talál\w*|szerepel\w*",
    ),
    _Wording(  # Greek
        r"\bδεν (?:γνωρίζω|ξέρω|μπορώ|βρήκα|υπάρχουν πληροφορίες|αναφέρεται|έχω)|καμία πληροφορία",
        r"δεν|καμία|κανένα",
        r"κείμεν\w*|κειμέν\w*|έγγραφ\w*|πηγ\w+|πληροφορί\w+|πλαίσι\w*",
        r"υπάρχ\w+|περιέχ\w+|αναφέρ\w+|βρέθηκ\w*|δίνε\w*",
    ),
    _Wording(  # Persian
        r"نمی[ \u200c]?(?:دانم|توانم)|اطلاعات\w* [^.]{0,60}(?:ندارم|یافت نشد|وجود ندارد|موجود نیست|نیامده)"
    ),
    _Wording(  # Bulgarian
        r"\bне (?:знам|мога|намерих|намирам|се споменава|е посочен\w*)"
        r"|\bняма(?:м)? (?:\w+ )?(?:информация|данни)",
        r"няма|не",
        r"контекст\w*|документ\w*|текст\w*|източни\w*",
        r"няма|съдърж\w*|споменава\w*|посоч\w*",
    ),
    _Wording(  # Croatian, Serbian, Slovenian
        r"\b(?:ne znam|ne vem|nemam|nimam|ne mogu|ne morem|nisam (?:pronaš|siguran)\w*)\b|nema (?:\w+ )?"
        r"(?:informacij|podat)\w*",
        r"ne|nema|ni|nije",
        r"kontekst\w*|dokument\w*|tekst\w*|besedil\w*|izvor\w*|vir(?:i|ih|u)",
        r"sadrž\w*|vsebuje\w*|spominj\w*|omenja\w*|naved\w*|nema|ni",
    ),
    _Wording(  # Catalan
        r"\bno (?:ho )?(?:sé|puc|trobo|he trobat|tinc (?:\w+ )?(?:informació|accés|dades)"
        r"|hi ha (?:\w+ )?informació)",
        r"no|cap",
        r"context|documents?|textos?|fonts?|informació",
        r"conté|contenen|esment\w+|menciona|inclou\w*|indica|troba\w*",
    ),
    _Wording(  # Swahili
        r"\b(?:sijui|siwezi|sina (?:\w+ )?(?:habari|taarifa|uhakika))|hakuna (?:habari|taarifa|jibu)"
    ),
    _Wording(  # Filipino
        r"hindi ko (?:alam|masagot|mahanap)|wala(?:ng)? (?:\w+ )?(?:impormasyon|sagot|nabanggit)"
    ),
    _Wording(r"(?:তথ্য|উত্তর|উল্লেখ)\S*[^।]{0,40}(?:নেই|পাওয়া যায়নি)|জানি না"),  # Bengali
    _Wording(r"(?:தகவல்|பதில்)\S*[^.]{0,40}(?:இல்லை|கிடைக்கவில்லை)|தெரியவில்லை|தெரியாது"),  # Tamil
    _Wording(r"(?:సమాచారం|సమాధానం)\S*[^.]{0,40}(?:లేదు|దొరకలేదు)|తెలియదు"),  # Telugu
    _Wording(r"(?:معلومات|جواب)[^۔.]{0,40}(?:نہیں|موجود نہیں)|معلوم نہیں|نہیں جانتا"),  # Urdu
)
_BARE: Final = re.compile(
    r"\W*(?:n/?a|none|unknown|null|no answer|k\. ?a\.|keine angabe|unbekannt|inconnue?|desconocido"
    r"|sconosciuto|desconhecido|onbekend|nieznane|неизвестно|невідомо|okänt|bilinmiyor|不明|未知|알 "
    r"수 없음|غير معروف|अज्ञात)\W*",
    re.IGNORECASE,
)
_APOLOGY: Final = re.compile(
    r"\W*(?:(?:i'm |i am |we are )?(?:very |so )?sorry|my apologies|i apologi[sz]e|entschuldigung"
    r"|es tut mir leid|tut mir leid|désolée?|je suis désolée?|lo siento|mi dispiace|desculpe|helaas"
    r"|przykro mi|извините|к сожалению|tyvärr|üzgünüm|申し訳ありません|抱歉|对不起|對不起|죄송합니다"
    r"|عذرا|क्षमा करें)\W*",
    re.IGNORECASE,
)
_CONTRAST: Final = re.compile(
    r"\b(?:but|however|although|aber|jedoch|mais|cependant|pero|sin embargo|ma|però|mas|porém|maar"
    r"|ale|jednak|но|однако|але|men|ama|fakat|لكن|ولكن)\b|ですが|しかし|但是?|不[过過]|하지만|지만"
    r"|लेकिन",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(
    r"\W*(?:please|kindly|bitte|veuillez|por favor|per favore|si prega|proszę|пожалуйста|будь ласка"
    r"|lütfen|请|請|gelieve|neem|kontakta|vänligen|कृपया|يرجى|vui lòng|silakan|contact|you (?:can"
    r"|may|should|might)|try\b|for (?:more|further)|let me know|if you|wenden sie sich|melden sie "
    r"sich|sie können|je vous (?:invite|recommande|suggère)|vous pouvez|n'hésitez|contatt|puede"
    r"|puedes|pode)",
    re.IGNORECASE,
)
_DIGIT: Final = re.compile(r"\d")
_MOST_CHARS: Final = 300


@lru_cache(maxsize=1024)
def declines(sentence: str) -> bool:
    """Return whether the sentence says that there is no answer; one that answers in part does not."""
    begun = sentence[: 2 * _MOST_CHARS].replace("’", "'").replace("*", "")
    plain = " ".join(begun.split())[:_MOST_CHARS].casefold()
    if is_refusal(plain) or _BARE.fullmatch(plain) or _APOLOGY.fullmatch(plain):
        return True
    if _DIGIT.search(plain):
        return False
    *before, last = _CONTRAST.split(plain)
    if not before:
        return _is_worded(plain)
    return _is_worded(last) or (requests(last) and _is_worded(before[-1]))


def requests(sentence: str) -> bool:
    """Return whether the sentence tells the reader what to do next: "Please contact our support."."""
    return bool(_REQUEST.match(sentence)) and not _DIGIT.search(sentence)


def _is_worded(plain: str) -> bool:
    return any(
        sure.search(plain) or (sets and all(words.search(plain) for words in sets))
        for sure, sets in _patterns()
    )


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], tuple[re.Pattern[str], ...]], ...]:
    return tuple(
        (
            re.compile(wording.sure),
            tuple(re.compile(rf"(?<!\w)(?:{words})(?!\w)") for words in wording[1:] if words),
        )
        for wording in _WORDINGS
    )
